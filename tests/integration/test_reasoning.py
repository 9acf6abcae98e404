"""Reasoning through a real daemon and worker: apart from the content on every surface."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon
from tests.echo_models import echo_gguf

TURN = "<|im_start|>user\n{{ messages[-1].content }}<|im_end|>\n<|im_start|>assistant\n"
KNOWS_MARKS = TURN + "{# cut at </think> #}{{ '' if enable_thinking else '' }}"
OPENS_ITSELF = TURN + "<think>\n{# </think> #}{{ '' if enable_thinking else '' }}"
THOUGHT = "<think>\nhm, hm\n</think>\n\nyes"


def create(client: httpx.Client, name: str, template: str) -> None:
    content = echo_gguf(salt=name)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert client.post(f"/api/blobs/{digest}", content=content).status_code in (200, 201)
    body = {"model": name, "files": {"m.gguf": digest}, "template": template, "stream": False}
    assert client.post("/api/create", json=body).status_code == 200


@pytest.fixture(scope="module", autouse=True)
def models(shared_daemon: RunningDaemon) -> None:
    """Made once: a model that is made again has another worker."""
    with shared_daemon.client() as client:
        create(client, "thinker", KNOWS_MARKS)
        create(client, "opener", OPENS_ITSELF)


def asked(model: str, text: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def chunks(client: httpx.Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    text = client.post("/v1/chat/completions", json={**body, "stream": True}).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line)["choices"][0]["delta"] for line in lines]


@pytest.mark.parametrize(
    ("model", "text"), [("thinker", THOUGHT), ("opener", THOUGHT.removeprefix("<think>\n"))]
)
def test_openai_gets_reasoning_apart_whole_and_streamed(
    client: httpx.Client, model: str, text: str
) -> None:
    answer = client.post("/v1/chat/completions", json=asked(model, text)).json()
    message = answer["choices"][0]["message"]
    assert message["content"] == "yes"
    assert message["reasoning"] == message["reasoning_content"] == "hm, hm\n"
    deltas = chunks(client, asked(model, text))
    assert "".join(delta.get("content") or "" for delta in deltas) == "yes"
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "hm, hm\n"
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "hm, hm\n"


def test_ollama_gets_thinking_apart_whole_and_streamed(client: httpx.Client) -> None:
    message = client.post("/api/chat", json=asked("thinker", THOUGHT, stream=False)).json()[
        "message"
    ]
    assert message == {"role": "assistant", "content": "yes", "thinking": "hm, hm\n"}
    lines = client.post("/api/chat", json=asked("opener", THOUGHT[8:])).text.splitlines()
    messages = [json.loads(line)["message"] for line in lines]
    assert "".join(each["content"] for each in messages) == "yes"
    assert "".join(each.get("thinking", "") for each in messages) == "hm, hm\n"
    body = {"model": "thinker", "prompt": THOUGHT, "stream": False}
    answer = client.post("/api/generate", json=body).json()
    assert (answer["response"], answer["thinking"]) == ("yes", "hm, hm\n")


def test_a_raw_prompt_is_left_alone(client: httpx.Client) -> None:
    body = {"model": "thinker", "prompt": THOUGHT, "raw": True, "stream": False}
    answer = client.post("/api/generate", json=body).json()
    assert answer["response"] == THOUGHT
    assert "thinking" not in answer


def test_the_wish_to_think_reaches_the_template(client: httpx.Client) -> None:
    template = TURN.replace(
        "{{ messages", "{{ enable_thinking }} {{ reasoning_effort }} {{ messages"
    )
    create(client, "wishes", template + "{# </think> #}")

    def said(path: str, **more: Any) -> str:
        answer = client.post(path, json=asked("wishes", "x", stream=False, **more)).json()
        message = answer["message"] if "message" in answer else answer["choices"][0]["message"]
        return str(message["content"]).strip()

    assert said("/api/chat", think=False) == "False  x"
    assert said("/api/chat", think="high") == "True high x"
    assert said("/api/chat") == "True  x"
    assert said("/v1/chat/completions") == "x"
    assert said("/v1/chat/completions", reasoning_effort="none") == "False  x"
    assert said("/v1/chat/completions", reasoning_effort="low") == "True low x"
    assert said("/v1/chat/completions", chat_template_kwargs={"enable_thinking": 7}) == "7  x"


def test_what_cannot_be_wished_is_refused(client: httpx.Client) -> None:
    refused = client.post("/api/chat", json=asked("echo", "x", think=True))
    assert refused.status_code == 400
    assert "does not support thinking" in refused.json()["error"]
    refused = client.post("/api/chat", json=asked("thinker", "x", think="hardest"))
    assert refused.status_code == 400
    assert "expected true, false, minimal" in refused.json()["error"]
    assert client.post("/api/chat", json=asked("echo", "x", think=False)).status_code == 200


def test_a_thinking_model_says_so(client: httpx.Client) -> None:
    shown = client.post("/api/show", json={"model": "thinker"}).json()
    assert "thinking" in shown["capabilities"]
    assert "thinking" not in client.post("/api/show", json={"model": "echo"}).json()["capabilities"]


def test_responses_give_reasoning_as_a_summary_to_those_who_ask_for_one(
    client: httpx.Client,
) -> None:
    body = {"model": "thinker", "input": THOUGHT, "reasoning": {"summary": "auto"}}
    item, message = client.post("/v1/responses", json=body).json()["output"]
    assert item["summary"] == [{"type": "summary_text", "text": "hm, hm\n"}]
    assert (item["content"], message["content"][0]["text"]) == ([], "yes")
    lines = client.post("/v1/responses", json={**body, "stream": True}).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    summary = [event for event in events if "reasoning_summary" in event["type"]]
    kinds = [event["type"].removeprefix("response.reasoning_summary_") for event in summary]
    deltas = ["text.delta"] * (len(kinds) - 3)
    assert kinds == ["part.added", *deltas, "text.done", "part.done"]
    assert {event["summary_index"] for event in summary} == {0}
    assert "".join(event.get("delta", "") for event in summary) == "hm, hm\n"
    unknown = {**body, "reasoning": {"summary": "long"}}
    assert client.post("/v1/responses", json=unknown).status_code == 400
    again = [{"role": "user", "content": "a"}, item, {"role": "user", "content": "b"}]
    answer = client.post("/v1/responses", json={"model": "thinker", "input": again}).json()
    assert answer["output"][-1]["content"][0]["text"] == "b"
