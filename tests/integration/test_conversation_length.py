"""A conversation longer than the context, through a real daemon and worker, on every surface."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon
from tests.echo_models import echo_gguf

CONTEXT = 256


@pytest.fixture(scope="module", autouse=True)
def model(shared_daemon: RunningDaemon) -> None:
    """Made once: a model that is made again has another worker."""
    content = echo_gguf(salt="length")
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    body = {"model": "long", "files": {"m.gguf": digest}, "stream": False}
    with shared_daemon.client() as client:
        assert client.post(f"/api/blobs/{digest}", content=content).status_code in (200, 201)
        assert client.post("/api/create", json=body).status_code == 200


def talk(**more: Any) -> dict[str, Any]:
    turns = [
        {"role": role, "content": "words " * 5} for _ in range(6) for role in ("user", "assistant")
    ]
    options = {"num_ctx": CONTEXT, "num_predict": 8}
    messages = [*turns, {"role": "user", "content": "the end"}]
    return {"model": "long", "messages": messages, "options": options, **more}


def test_ollama_drops_the_oldest_turns_and_says_so(client: httpx.Client) -> None:
    answer = client.post("/api/chat", json=talk(stream=False)).json()
    assert answer["messages_dropped"] >= 2
    assert answer["prompt_eval_count"] < CONTEXT
    lines = client.post("/api/chat", json=talk()).text.splitlines()
    assert json.loads(lines[-1])["messages_dropped"] == answer["messages_dropped"]


def test_ollama_refuses_with_truncate_false(client: httpx.Client) -> None:
    answer = client.post("/api/chat", json=talk(stream=False, truncate=False))
    assert answer.status_code == 400
    assert f"maximum context length is {CONTEXT} tokens" in answer.json()["error"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/api/generate", {"prompt": "long " * 200}),
        ("/api/generate", {"prompt": "long " * 200, "raw": True}),
        ("/api/chat", {"messages": [{"role": "user", "content": "long " * 200}]}),
    ],
)
def test_ollama_cuts_a_prompt_that_is_too_long_by_itself_and_says_so(
    client: httpx.Client, path: str, text: dict[str, Any], stream: bool
) -> None:
    options = {"num_ctx": CONTEXT, "num_predict": 8}
    body = {"model": "long", "options": options, "stream": stream, **text}
    answer = client.post(path, json=body)
    last = json.loads(answer.text.splitlines()[-1])
    assert last["truncated"] is True
    assert last["tokens_dropped"] + last["prompt_eval_count"] >= 1000
    assert last["prompt_eval_count"] == CONTEXT - 8
    assert answer.headers["x-hearth-truncated"] == f"messages=0, tokens={last['tokens_dropped']}"
    for more in ({"truncate": False}, {"shift": False}):
        refused = client.post(path, json={**body, **more})
        assert refused.status_code == 400
        assert f"maximum context length is {CONTEXT} tokens" in refused.json()["error"]
    assert client.post("/v1/completions", json={**body, "prompt": "long " * 200}).status_code == 400


def test_openai_refuses_unless_truncation_is_auto(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json=talk())
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    answer = client.post("/v1/chat/completions", json=talk(truncation="auto"))
    dropped = answer.json()["truncated"]
    assert dropped["messages_dropped"] >= 2
    text = client.post("/v1/chat/completions", json=talk(truncation="auto", stream=True)).text
    events = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
    assert [event["truncated"] for event in events if "truncated" in event] == [dropped]


def test_a_conversation_that_fits_has_no_such_field(client: httpx.Client) -> None:
    body = talk(stream=False)
    body["messages"] = body["messages"][-1:]
    answer = client.post("/api/chat", json=body).json()
    assert not {"truncated", "messages_dropped", "shifted_tokens", "limit"} & set(answer)


def long_answer(client: httpx.Client, **more: Any) -> dict[str, Any]:
    options = {"num_ctx": CONTEXT, "num_predict": 100, "num_keep": 8}
    body = {"model": "long", "prompt": "a" * 200, "options": options, "stream": False, **more}
    answer: dict[str, Any] = client.post("/api/generate", json=body).json()
    return answer


def test_ollama_goes_on_beyond_the_context_and_says_how_much_left_it(client: httpx.Client) -> None:
    answer = long_answer(client)
    assert answer["prompt_eval_count"] + answer["eval_count"] > CONTEXT
    assert answer["shifted_tokens"] > 0
    assert answer["limit"] == "num_predict"
    assert set(answer["response"]) == {"a"}


@pytest.mark.parametrize("path", ["/api/generate", "/v1/completions", "/v1/chat/completions"])
def test_an_answer_that_only_repeats_itself_ends_unless_that_is_switched_off(
    client: httpx.Client, path: str
) -> None:
    """The model repeats its prompt."""
    messages = [{"role": "user", "content": "again " * 100}]
    body = {"model": "long", "prompt": "again " * 100, "messages": messages, "stream": False}
    body |= {"raw": True, "max_tokens": 700}

    def answer(**options: int) -> dict[str, Any]:
        options = {"num_ctx": 2048, **options}
        found: dict[str, Any] = client.post(path, json={**body, "options": options}).json()
        return found

    whole, ended, free = answer(), answer(repeat_limit=200), answer(repeat_limit=0)
    if path == "/api/generate":
        assert (ended["done_reason"], ended["limit"]) == ("length", "repetition")
        assert 200 <= ended["eval_count"] <= 232
        assert (whole["done_reason"], free["done_reason"]) == ("stop", "stop")
    else:
        reasons = [item["choices"][0]["finish_reason"] for item in (whole, ended, free)]
        assert reasons == ["stop", "length", "stop"]
        assert 200 <= ended["usage"]["completion_tokens"] <= 232


def test_vllms_form_of_it_is_refused_by_name(client: httpx.Client) -> None:
    body = talk(repetition_detection={"max_pattern_size": 8, "min_count": 4})
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "repetition_detection"


def test_ollama_ends_at_the_context_with_shift_false(client: httpx.Client) -> None:
    answer = long_answer(client, shift=False)
    assert (answer["done_reason"], answer["limit"]) == ("length", "context")
    assert answer["prompt_eval_count"] + answer["eval_count"] == CONTEXT
    assert "shifted_tokens" not in answer


def test_an_answer_without_a_limit_is_ended_and_the_log_says_so(
    client: httpx.Client, shared_daemon: RunningDaemon
) -> None:
    ends = {f"{end}": -100 for end in range(8)}  # of ember's vocabulary
    options = {"num_ctx": 64, "num_predict": -1, "repeat_limit": 0, "logit_bias": ends, "seed": 1}
    body = {"model": "ember", "prompt": "Once upon a time", "raw": True, "stream": False}
    answer = client.post("/api/generate", json={**body, "options": options}, timeout=60).json()
    assert (answer["done_reason"], answer["limit"]) == ("length", "generation")
    assert answer["eval_count"] == 640
    for _ in range(1000):  # until the line has come through the pipe
        if any(
            "ember" in line and "stopped after 640 tokens" in line for line in shared_daemon.lines
        ):
            break
        client.get("/health")
    else:
        pytest.fail("".join(shared_daemon.lines[-20:]))
