"""What a request allows an answer to say, over a daemon: which tokens, from where on, for how
long it may reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon, running_daemon
from tests.echo_models import install_echo
from tests.fake_backend import EOS

THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)
THOUGHT = "<think>abcdefghijkl</think>done"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    from registry.store import Store

    home = tmp_path_factory.mktemp("limits")
    store = Store.open(home / "models")
    install_echo(store, "thinker", template=THINKING)
    store.close()
    with running_daemon(home) as found:
        yield found


@pytest.fixture
def client(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    with daemon.client() as http:
        yield http


def chat(client: httpx.Client, text: str, model: str = "echo", **fields: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
    answer = client.post("/v1/chat/completions", json={"max_tokens": 60, **body})
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def said(client: httpx.Client, text: str, **fields: Any) -> str:
    return str(chat(client, text, **fields)["message"]["content"])


def test_an_answer_does_not_end_before_its_least_tokens(client: httpx.Client) -> None:
    assert said(client, "hi") == "hi"
    longer = said(client, "hi", min_tokens=5)
    assert longer.startswith("hi")
    assert len(longer) >= 5


def test_a_stop_string_counts_only_after_the_least_tokens(client: httpx.Client) -> None:
    assert said(client, "a.b.c.d", stop=".", min_tokens=4) == "a.b.c"


def test_a_token_ends_the_answer_and_does_not_show(client: httpx.Client) -> None:
    choice = chat(client, "one,two", stop_token_ids=[ord(",")])
    assert choice["message"]["content"] == "one"
    assert choice["finish_reason"] == "stop"


def test_a_stop_token_counts_also_where_end_tokens_do_not(client: httpx.Client) -> None:
    assert said(client, "ab", ignore_eos=True, stop_token_ids=[ord("b")]) == "a"


def test_a_constraint_leaves_ignored_end_tokens_ignored(client: httpx.Client) -> None:
    answer = chat(client, "ab", ignore_eos=True, bad_words=["zz"], max_tokens=7)
    assert answer["finish_reason"] == "length"


def test_bad_words_are_not_said(client: httpx.Client) -> None:
    answer = said(client, "good bad good", bad_words=["bad"])
    assert answer.startswith("good ba")
    assert "bad" not in answer


def test_only_the_allowed_tokens_are_said(client: httpx.Client) -> None:
    allowed = [ord(letter) for letter in "abc"] + [EOS]
    assert set(said(client, "abxcay", allowed_token_ids=allowed)) <= set("abc")


def test_no_run_of_tokens_comes_twice(client: httpx.Client) -> None:
    body = {"model": "echo", "prompt": "abcabc", "max_tokens": 8, "no_repeat_ngram_size": 2}
    text = "abcabc" + client.post("/v1/completions", json=body).json()["choices"][0]["text"]
    pairs = [text[at : at + 2] for at in range(5, len(text) - 1)]
    assert len(set(pairs)) == len(pairs)
    assert not set(pairs) & {"ab", "bc", "ca"}


def test_a_bias_may_be_by_text(client: httpx.Client) -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    refused = client.post("/v1/chat/completions", json={**body, "logit_bias": {"a" * 257: 1}})
    assert refused.status_code == 400
    assert "logit_bias" in refused.json()["error"]["message"]
    assert client.post("/v1/chat/completions", json={**body, "logit_bias": {"a": 1}}).is_success


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking_token_budget": 4},
        {"thinking_budget": 4},
        {"reasoning_budget_tokens": 4},
        {"thinking_budget_tokens": 4},
        {"reasoning": {"max_tokens": 4}},
        {"options": {"thinking_budget": 4}},
    ],
)
def test_reasoning_is_ended_at_its_budget(client: httpx.Client, fields: dict[str, Any]) -> None:
    message = chat(client, THOUGHT, "thinker", **fields)["message"]
    assert message["reasoning"] == "abcd"
    assert message["content"].startswith("</think>done")  # what the model went on to say


def test_reasoning_within_its_budget_is_whole(client: httpx.Client) -> None:
    message = chat(client, THOUGHT, "thinker", thinking_budget=40)["message"]
    assert (message["reasoning"], message["content"]) == ("abcdefghijkl", "done")


def test_anthropics_budget_ends_thinking(client: httpx.Client) -> None:
    thinking = {"type": "enabled", "budget_tokens": 4}
    body = {"model": "thinker", "max_tokens": 60, "thinking": thinking,
            "messages": [{"role": "user", "content": THOUGHT}]}  # fmt: skip
    answer = client.post("/v1/messages", json=body).json()
    assert answer["content"][0]["thinking"] == "abcd"
    assert answer["id"].startswith("msg_")
    hidden = client.post(
        "/v1/messages", json={**body, "thinking": {**thinking, "display": "omitted"}}
    )
    assert hidden.json()["content"][0]["thinking"] == ""


def test_ollamas_options_limit_thinking_too(client: httpx.Client) -> None:
    body = {"model": "thinker", "think": True, "stream": False, "options": {"thinking_budget": 4},
            "messages": [{"role": "user", "content": THOUGHT}]}  # fmt: skip
    assert client.post("/api/chat", json=body).json()["message"]["thinking"] == "abcd"


def test_a_grammar_holds_after_reasoning_that_was_ended(client: httpx.Client) -> None:
    choice = chat(client, THOUGHT, "thinker", thinking_budget=4, guided_choice=["yes", "no"])
    assert choice["message"]["reasoning"] == "abcd"
    assert choice["message"]["content"] in ("yes", "no")


def test_a_text_has_no_reasoning_to_end(client: httpx.Client) -> None:
    body = {"model": "thinker", "prompt": "x", "max_tokens": 4, "thinking_budget": 4}
    refused = client.post("/v1/completions", json=body)
    assert refused.status_code == 400
    assert "thinking_budget" in refused.json()["error"]["message"]


def test_tokens_of_prompt_and_answer_come_by_their_ids(client: httpx.Client) -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9,
            "return_token_ids": True}  # fmt: skip
    whole = client.post("/v1/chat/completions", json=body).json()
    assert whole["choices"][0]["token_ids"] == [*b"hi", EOS]
    assert bytes(token for token in whole["prompt_token_ids"] if token < 256).startswith(
        b"user\nhi"
    )
    assert whole["choices"][0]["logprobs"] is None
    told, ids = [], []
    with client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                told += [event["prompt_token_ids"]] if "prompt_token_ids" in event else []
                ids += event["choices"][0].get("token_ids", [])
    assert told == [whole["prompt_token_ids"]]
    assert ids == [*b"hi", EOS]


def test_tokens_of_completions_come_with_each_choice(client: httpx.Client) -> None:
    body = {"model": "echo", "prompt": ["a", "bc"], "max_tokens": 9, "return_token_ids": True}
    first, second = client.post("/v1/completions", json=body).json()["choices"]
    assert (first["token_ids"], second["token_ids"]) == ([*b"a", EOS], [*b"bc", EOS])
    assert second["prompt_token_ids"][-2:] == [*b"bc"]
    assert second["logprobs"] is None


def test_reasoning_stays_out_where_it_is_not_wanted(client: httpx.Client) -> None:
    for fields in ({"include_reasoning": False}, {"reasoning": {"exclude": True}}):
        message = chat(client, THOUGHT, "thinker", **fields)["message"]
        assert message["content"] == "done"
        assert "reasoning" not in message


@pytest.mark.parametrize("route", ["/api/generate", "/v1/completions", "/api/embed"])
def test_options_without_effect_are_told_in_a_header(client: httpx.Client, route: str) -> None:
    options = {"num_ctx": 99_999, "main_gpu": 3}
    body = {"model": "echo", "prompt": "x", "input": "x", "stream": False, "options": options}
    told = client.post(route, json=body).headers["x-hearth-warning"]
    assert told == (
        "num_ctx=99999 is more than the model has: 4096 is used; "
        "main_gpu=3 has no effect: only the backend llamacpp has it"
    )
    plain = client.post(route, json={**body, "options": {"temperature": 0}})
    assert "x-hearth-warning" not in plain.headers


def test_the_log_names_options_without_effect_once(start_daemon: StartDaemon) -> None:
    body = {"model": "echo", "prompt": "x", "stream": False, "options": {"num_gpu": 7}}
    daemon = start_daemon()
    with daemon.client() as http:
        for _ in range(3):
            http.post("/api/generate", json=body).raise_for_status()
    daemon.stop()
    told = [line for line in daemon.lines if "num_gpu=7 has no effect" in line]
    assert len(told) == 1
