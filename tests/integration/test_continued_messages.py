"""A last message by the assistant is continued, on every surface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

USER = {"role": "user", "content": "a<|hash|>b"}  # the answer depends on every token before it
BEGUN = {"role": "assistant", "content": "It is"}
OPEN = "<|im_start|>user\na<|hash|>b<|im_end|>\n<|im_start|>assistant\nIt is"
CLOSED = f"{OPEN}<|im_end|>\n<|im_start|>assistant\n"


def completed(client: httpx.Client, prompt: str) -> str:
    body = {"model": "echo", "prompt": prompt, "max_tokens": 12, "temperature": 0}
    return str(client.post("/v1/completions", json=body).json()["choices"][0]["text"])


def openai(client: httpx.Client, *messages: dict[str, str], **fields: Any) -> str:
    body = {"model": "echo", "messages": messages, "max_tokens": 12, "temperature": 0, **fields}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def ollama(client: httpx.Client, *messages: dict[str, str]) -> str:
    options = {"num_predict": 12, "temperature": 0}
    body = {"model": "echo", "messages": messages, "stream": False, "options": options}
    return str(client.post("/api/chat", json=body).json()["message"]["content"])


def anthropic(client: httpx.Client, *messages: dict[str, str]) -> str:
    body = {"model": "echo", "messages": messages, "max_tokens": 12, "temperature": 0}
    return str(client.post("/v1/messages", json=body).json()["content"][0]["text"])


@pytest.mark.parametrize("ask", [openai, ollama, anthropic])
def test_the_answer_holds_the_continuation_only(
    client: httpx.Client, ask: Callable[..., str]
) -> None:
    expected = completed(client, OPEN)
    assert expected
    assert expected != completed(client, CLOSED)
    assert ask(client, USER, BEGUN) == expected


@pytest.mark.parametrize("ask", [openai, ollama, anthropic])
def test_a_last_message_without_text_changes_nothing(
    client: httpx.Client, ask: Callable[..., str]
) -> None:
    assert ask(client, USER, {**BEGUN, "content": ""}) == ask(client, USER)


def test_openai_can_close_the_message_or_insist(client: httpx.Client) -> None:
    closed = completed(client, CLOSED)
    for fields in ({"add_generation_prompt": True}, {"continue_final_message": False}):
        assert openai(client, USER, BEGUN, **fields) == closed
    insisting = {"continue_final_message": True, "add_generation_prompt": False}
    assert openai(client, USER, BEGUN, **insisting) == completed(client, OPEN)


def test_without_a_generation_prompt_the_model_gets_none(client: httpx.Client) -> None:
    bare = OPEN.removesuffix("<|im_start|>assistant\nIt is")
    assert openai(client, USER, add_generation_prompt=False) == completed(client, bare)


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([USER], {"continue_final_message": True}),
        ([USER, BEGUN], {"continue_final_message": True, "add_generation_prompt": True}),
    ],
)
def test_what_contradicts_itself_is_refused(
    client: httpx.Client, messages: list[dict[str, str]], fields: dict[str, bool]
) -> None:
    body = {"model": "echo", "messages": messages, **fields}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "continue_final_message"


def test_tokens_are_counted_and_shown_as_they_are_used(client: httpx.Client) -> None:
    body = {"model": "echo", "messages": [USER, BEGUN]}
    counted = client.post("/v1/messages/count_tokens", json=body).json()["input_tokens"]
    shown = {**body, "continue_final_message": True}
    assert client.post("/apply-template", json=shown).json()["prompt"] == OPEN
    assert client.post("/tokenize", json=shown).json()["count"] == counted


@pytest.mark.parametrize(
    ("status", "prompt"), [(None, CLOSED), ("completed", CLOSED), ("incomplete", OPEN)]
)
def test_responses_continue_a_message_that_is_not_whole(
    client: httpx.Client, status: str | None, prompt: str
) -> None:
    begun = {"type": "message", **BEGUN, **({} if status is None else {"status": status})}
    asked = {"model": "echo", "input": [USER, begun], "max_output_tokens": 12, "temperature": 0}
    answer = client.post("/v1/responses", json=asked).json()
    assert answer["output"][0]["content"][0]["text"] == completed(client, prompt)
