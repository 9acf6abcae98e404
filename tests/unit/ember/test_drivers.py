"""How the evaluation asks a running daemon."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.ember.drivers import HttpDriver, Question

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
ASKED = [
    {"role": "user", "content": "add 1"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "user", "content": "and now?"},
]


def driver(answer: httpx.Response, seen: list[Any]) -> HttpDriver:
    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return answer

    made = HttpDriver("http://127.0.0.1:1/v1")
    made.client.close()
    made.client = httpx.Client(transport=httpx.MockTransport(handle), base_url="http://127.0.0.1:1")
    return made


def test_arguments_of_calls_travel_as_json_text() -> None:
    seen: list[Any] = []
    message = {"role": "assistant", "content": "2"}
    asking = driver(httpx.Response(200, json={"choices": [{"message": message}]}), seen)
    reply = asking._one(Question(ASKED, [], 8))  # type: ignore[arg-type]
    assert reply.content == "2"
    sent = seen[0]["messages"]
    assert sent[0] == ASKED[0]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"a": 1}


def test_a_refusal_is_told_in_the_words_of_the_daemon() -> None:
    asking = driver(httpx.Response(400, json={"error": {"message": "too long"}}), [])
    with pytest.raises(RuntimeError, match=r"400.*too long"):
        asking._one(Question(ASKED, [], 8))  # type: ignore[arg-type]
