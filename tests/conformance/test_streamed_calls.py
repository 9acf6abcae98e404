"""Calls whose arguments come while they are written, through the SDKs and by hand: the pieces put
together are what the whole answer has."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.conftest import RunningDaemon

ARGUMENTS = {"city": "Paris, Île-de-France", "days": [1, 2.5], "now": True}
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {json.dumps(ARGUMENTS)}}}\n</tool_call>'
WRITTEN = json.dumps(ARGUMENTS, ensure_ascii=False)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "array", "items": {"type": "number"}},
        "now": {"type": "boolean"},
    },
}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
CUT = 70  # bytes of CALL that the echo backend writes: inside the first argument


def chat(client: httpx.Client, **more: Any) -> httpx.Response:
    messages = [{"role": "user", "content": CALL}]
    body = {"model": "tools", "messages": messages, "tools": [TOOL], **more}
    return client.post("/v1/chat/completions", json=body)


def deltas(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    choices = [json.loads(line)["choices"] for line in lines if line != "[DONE]"]
    return [choice["delta"] for (choice,) in choices if choice["delta"].get("tool_calls")]


def test_chat_completions(client: httpx.Client) -> None:
    pieces = [call for delta in deltas(chat(client, stream=True).text)
              for call in delta["tool_calls"]]  # fmt: skip
    first, *others = pieces
    assert (first["index"], first["type"]) == (0, "function")
    assert first["function"] == {"name": "weather", "arguments": ""}
    assert all(set(each) == {"index", "function"} for each in others)
    assert len(others) > 10
    joined = "".join(each["function"]["arguments"] for each in pieces)
    (whole,) = chat(client).json()["choices"][0]["message"]["tool_calls"]
    assert joined == whole["function"]["arguments"] == WRITTEN


def test_a_call_cut_off_ends_with_length_the_same_whole_and_streamed(client: httpx.Client) -> None:
    text = chat(client, stream=True, max_tokens=CUT).text
    joined = "".join(delta["tool_calls"][0]["function"]["arguments"] for delta in deltas(text))
    choice = chat(client, max_tokens=CUT).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert '"finish_reason":"length"' in text
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == joined
    with pytest.raises(ValueError, match=r"."):
        json.loads(joined)


def test_responses(shared_daemon: RunningDaemon) -> None:
    with openai.OpenAI(
        base_url=f"{shared_daemon.url}/v1", api_key="none", _strict_response_validation=True
    ) as sdk:
        tool: Any = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}
        events = list(sdk.responses.create(model="tools", input=CALL, tools=[tool], stream=True))
        whole = sdk.responses.create(model="tools", input=CALL, tools=[tool])
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done")
    pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    (done,) = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert len(pieces) > 10
    assert "".join(pieces) == done.arguments == whole.output[0].arguments == WRITTEN
    assert events[-1].response.output[0].status == "completed"


def test_messages(shared_daemon: RunningDaemon) -> None:
    tool: Any = {"name": "weather", "input_schema": SCHEMA}
    with anthropic.Anthropic(
        base_url=shared_daemon.url, api_key="none", _strict_response_validation=True
    ) as sdk:
        given: Any = {"model": "tools", "max_tokens": 300, "tools": [tool]}
        messages: Any = [{"role": "user", "content": f"so {CALL}"}]
        with sdk.messages.stream(**given, messages=messages) as stream:
            pieces = [e.partial_json for e in stream if e.type == "input_json"]
            final = stream.get_final_message()
        whole = sdk.messages.create(**given, messages=messages)
    assert len(pieces) > 10
    assert "".join(pieces) == WRITTEN
    assert final.content[1].input == whole.content[1].input == ARGUMENTS
    assert (final.stop_reason, whole.stop_reason) == ("tool_use", "tool_use")


FENCED = f"I look.\n\n```json\n{CALL.splitlines()[1]}\n```"
TWO = f"```json\n[{CALL.splitlines()[1]}, {CALL.splitlines()[1]}]\n```"


def test_calls_in_a_block_of_json_on_every_surface(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": FENCED}]
    body = {"model": "tools", "messages": messages}
    choice = chat(client, messages=messages).json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "I look.")
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == WRITTEN
    pieces = [
        call["function"]["arguments"]
        for delta in deltas(chat(client, messages=messages, stream=True).text)
        for call in delta["tool_calls"]
    ]
    assert len(pieces) > 10
    assert "".join(pieces) == WRITTEN
    message = client.post("/api/chat", json={**body, "tools": [TOOL], "stream": False}).json()
    called = message["message"]["tool_calls"][0]["function"]
    assert (called["name"], called["arguments"]) == ("weather", ARGUMENTS)
    tool = {"name": "weather", "input_schema": SCHEMA}
    asked = {**body, "max_tokens": 300, "tools": [tool]}
    answer = client.post("/v1/messages", json=asked).json()
    assert [block["type"] for block in answer["content"]] == ["text", "tool_use"]
    assert answer["content"][1]["input"] == ARGUMENTS
    given = {"model": "tools", "input": FENCED, "tools": [{"type": "function", **TOOL["function"]}]}
    items = client.post("/v1/responses", json=given).json()["output"]
    assert [item["type"] for item in items] == ["message", "function_call"]
    assert items[1]["arguments"] == WRITTEN


def test_parallel_calls_in_a_block_of_json(client: httpx.Client) -> None:
    found = deltas(chat(client, messages=[{"role": "user", "content": TWO}], stream=True).text)
    calls = [call for delta in found for call in delta["tool_calls"]]
    for index in (0, 1):
        pieces = [call["function"]["arguments"] for call in calls if call["index"] == index]
        assert "".join(pieces) == WRITTEN


def test_with_tool_choice_none_a_block_of_json_stays_text(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": FENCED}]
    choice = chat(client, messages=messages, tool_choice="none").json()["choices"][0]
    assert choice["message"]["content"] == FENCED
    assert "tool_calls" not in choice["message"]
