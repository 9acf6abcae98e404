"""Structured output and required calls of the bundled model, by the official OpenAI SDK: what a
small model says when it is free does not matter, every answer must be valid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import openai
import pytest

from tests.conftest import RunningDaemon
from tests.ember.exchange import Call, Conversation
from tests.ember.grading import callable_with
from tests.ember.skills import tool_use

QUESTIONS = 20
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 3},
        "kind": {"anyOf": [{"const": "friend"}, {"$ref": "#/$defs/other"}]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
    "$defs": {"other": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"}},
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}


@pytest.fixture(scope="module")
def sdk(shared_daemon: RunningDaemon) -> Iterator[openai.OpenAI]:
    url = f"{shared_daemon.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


def whole(sdk: openai.OpenAI, asked: dict[str, Any]) -> tuple[list[Call], str | None]:
    choice = sdk.chat.completions.create(**asked).choices[0]
    calls = [
        Call(call.function.name, json.loads(call.function.arguments))
        for call in choice.message.tool_calls or []
        if call.type == "function"
    ]
    return calls, choice.finish_reason


def streamed(sdk: openai.OpenAI, asked: dict[str, Any]) -> tuple[list[Call], str | None]:
    parts: dict[int, list[str]] = {}
    reason = None
    for chunk in sdk.chat.completions.create(**asked, stream=True):
        reason = chunk.choices[0].finish_reason or reason
        for piece in chunk.choices[0].delta.tool_calls or []:
            part = parts.setdefault(piece.index, ["", ""])
            assert piece.function is not None
            part[0] += piece.function.name or ""
            part[1] += piece.function.arguments or ""
    return [Call(name, json.loads(arguments)) for name, arguments in parts.values()], reason


def question(conversation: Conversation) -> dict[str, Any]:
    tools = [tool if "function" in tool else {"type": "function", "function": tool}
             for tool in conversation.tools]  # fmt: skip
    messages = [turn.message() for turn in conversation.turns[:-1]]
    return {"model": "ember", "messages": messages, "tools": tools, "temperature": 0,
            "max_tokens": 300, "tool_choice": "required"}  # fmt: skip


def test_every_required_call_is_valid(sdk: openai.OpenAI) -> None:
    rng = Random("required calls")
    for number in range(QUESTIONS):
        conversation = tool_use.call_conversation(rng, "eval")
        calls, reason = (streamed if number % 2 else whole)(sdk, question(conversation))
        assert reason == "tool_calls"
        assert calls
        assert all(callable_with(call, conversation.tools) for call in calls), calls


def is_person(text: str) -> bool:
    person = json.loads(text)
    kind = person["kind"]
    other = kind[:2].isupper() and kind[2] == "-" and kind[3:].isdigit() and len(kind) < 7
    return (
        {"name", "age", "kind"} <= set(person) <= {"name", "age", "kind", "tags"}
        and 1 <= len(person["name"]) <= 20
        and 0 <= person["age"] <= 120
        and all(len(tag) <= 10 for tag in person.get("tags", []))
        and len(person.get("tags", [])) <= 3
        and (kind == "friend" or other)
    )


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
def test_every_answer_matches_its_schema(sdk: openai.OpenAI, temperature: float) -> None:
    asked: dict[str, Any] = {
        "model": "ember",
        "messages": [{"role": "user", "content": "Invent a person."}],
        "temperature": temperature,
        "max_tokens": 400,
        "response_format": FORMAT,
    }
    answers = [
        choice
        for seed in range(3)
        for choice in sdk.chat.completions.create(**asked, seed=seed, n=4).choices
    ]
    assert len(answers) == 12
    for choice in answers:
        assert choice.finish_reason == "stop"
        assert is_person(choice.message.content or ""), choice.message.content
