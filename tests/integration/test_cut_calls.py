"""A call that the limit breaks off, through a daemon and a worker on every surface."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

CALL = '<tool_call>\n{"name": "pay", "arguments": {"to": "Ann", "amount": 12345}}\n</tool_call>'
SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}},
}
FUNCTION = {"name": "pay", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
ASKED: dict[str, Any] = {"model": "tools", "messages": [{"role": "user", "content": CALL}]}
AT = CALL.index("2345")  # tokens of the echo model are bytes


@pytest.mark.parametrize("limit", [5, 20, CALL.index("Ann"), AT, AT + 4])
def test_a_cut_call_is_whole_on_no_surface(client: httpx.Client, limit: int) -> None:
    body = {**ASKED, "tools": [TOOL], "max_tokens": limit}
    (choice,) = client.post("/v1/chat/completions", json=body).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert not choice["message"]["content"]
    calls = [call["function"]["arguments"] for call in choice["message"].get("tool_calls", ())]
    text = client.post("/v1/chat/completions", json={**body, "stream": True}).text
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    choices = [json.loads(line)["choices"][0] for line in lines]
    pieces = [call for each in choices for call in each["delta"].get("tool_calls", ())]
    assert "".join(call["function"]["arguments"] for call in pieces) == "".join(calls)

    asked = {"model": "tools", "input": CALL, "tools": [{"type": "function", **FUNCTION}]}
    response = client.post("/v1/responses", json={**asked, "max_output_tokens": limit}).json()
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["arguments"] for item in response["output"]] == calls
    assert all(item["status"] == "incomplete" for item in response["output"])

    tool = {"name": "pay", "input_schema": SCHEMA}
    answer = client.post("/v1/messages", json={**body, "tools": [tool]}).json()
    assert answer["stop_reason"] == "max_tokens"
    assert [(block["type"], block["input"]) for block in answer["content"]] == [
        ("tool_use", {}) for _ in calls
    ]

    given = {**ASKED, "tools": [TOOL], "options": {"num_predict": limit}, "stream": False}
    answer = client.post("/api/chat", json=given).json()
    assert answer["done_reason"] == "length"
    assert answer["message"] == {"role": "assistant", "content": ""}

    for arguments in calls:
        assert '{"to": "Ann", "amount": 12345'.startswith(arguments)
        assert not arguments[-1].isdigit()


def test_a_stop_string_of_the_request_cuts_a_call_and_the_models_own_ends_it(
    client: httpx.Client,
) -> None:
    body = {**ASKED, "tools": [TOOL], "stop": ["345"]}
    (choice,) = client.post("/v1/chat/completions", json=body).json()["choices"]
    assert choice["finish_reason"] == "stop"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["arguments"] == '{"to": "Ann", "amount": '
