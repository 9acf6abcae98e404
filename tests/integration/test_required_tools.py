"""tool_choice and strict functions through a real daemon and worker: calls always validate."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

CHAT = "/v1/chat/completions"
WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}
TIME = {"name": "get_time"}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": TIME}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def chat(client: httpx.Client, text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    response = client.post(CHAT, json={"model": "tools", "messages": messages, **more})
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def refusal(client: httpx.Client, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hello"}]
    response = client.post(CHAT, json={"model": "tools", "messages": messages, **more})
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def is_weather(function: dict[str, Any]) -> bool:
    arguments = json.loads(function["arguments"])
    return (
        function["name"] == "get_weather"
        and set(arguments) == {"city", "unit"}
        and arguments["unit"] in ("c", "f")
    )


@pytest.mark.parametrize("text", ["hello", "{", '<tool_call>{"name": "get_wea'])
def test_a_required_call_is_made_whatever_the_model_wanted_to_say(
    client: httpx.Client, text: str
) -> None:
    choice = chat(client, text, tools=TOOLS, tool_choice="required")
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    for call in choice["message"]["tool_calls"]:
        assert call["function"]["name"] == "get_time" or is_weather(call["function"])


@pytest.mark.parametrize(
    "tool_choice",
    [
        NAMED,
        {"type": "function", "name": "get_weather"},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}},
    ],
)
def test_a_named_function_is_the_one_that_is_called(
    client: httpx.Client, tool_choice: dict[str, Any]
) -> None:
    choice = chat(client, "hello", tools=TOOLS, tool_choice=tool_choice, parallel_tool_calls=False)
    (call,) = choice["message"]["tool_calls"]
    assert is_weather(call["function"])


def test_required_calls_are_streamed_like_others(client: httpx.Client) -> None:
    body = {"model": "tools", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    text = client.post(CHAT, json={**body, "tools": TOOLS, "tool_choice": NAMED}).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    choices = [json.loads(line)["choices"][0] for line in lines]
    calls = [call for each in choices for call in each["delta"].get("tool_calls") or ()]
    assert is_weather(
        {
            "name": "".join(call["function"].get("name") or "" for call in calls),
            "arguments": "".join(call["function"].get("arguments") or "" for call in calls),
        }
    )
    assert choices[-1]["finish_reason"] == "tool_calls"


def test_strict_functions_leave_text_free_and_hold_calls_to_their_schema(
    client: httpx.Client,
) -> None:
    tools = [{"type": "function", "function": {**WEATHER, "strict": True}}]
    assert chat(client, "Just text.", tools=tools)["message"]["content"] == "Just text."
    said = 'Well. <tool_call>{"name": "get_weather", "arguments": {"town": 3}}</tool_call>'
    message = chat(client, said, tools=tools)["message"]
    assert message["content"].startswith("Well.")
    assert is_weather(message["tool_calls"][0]["function"])


SAID = 'Well. <tool_call>{"name": "get_weather", "arguments": {}}</tool_call> Done.'


def test_a_call_that_nobody_asked_for_has_its_required_arguments(client: httpx.Client) -> None:
    message = chat(client, SAID, tools=TOOLS)["message"]
    assert message["content"].startswith("Well.")
    assert is_weather(message["tool_calls"][0]["function"])


def test_so_it_has_on_every_surface(client: httpx.Client) -> None:
    asked = {"model": "tools", "messages": [{"role": "user", "content": SAID}]}
    ollama = client.post("/api/chat", json={**asked, "tools": TOOLS, "stream": False}).json()
    called = ollama["message"]["tool_calls"][0]["function"]
    tool = {"name": "get_weather", "input_schema": WEATHER["parameters"]}
    body = {**asked, "max_tokens": 300, "tools": [tool]}
    block = client.post("/v1/messages", json=body).json()["content"][1]
    given = {"model": "tools", "input": SAID, "tools": [{"type": "function", **WEATHER}]}
    item = client.post("/v1/responses", json=given).json()["output"][1]
    for arguments in (called["arguments"], block["input"], json.loads(item["arguments"])):
        assert set(arguments) == {"city", "unit"}


def test_a_schema_that_cannot_be_enforced_leaves_calls_to_the_model(client: httpx.Client) -> None:
    wrong = {"contains": {"type": "string"}, "unevaluatedItems": False}
    schema = {"type": "object", "properties": {"a": wrong}, "required": ["a"]}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}
    for _ in range(2):
        message = chat(client, SAID, tools=[tool])["message"]
        assert message["tool_calls"][0]["function"]["arguments"] == "{}"
        assert message["content"].startswith("Well.")
        assert message["content"].endswith("Done.")


def test_beside_tools_an_answer_matches_its_format(client: httpx.Client) -> None:
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 5}}}
    more = {"tools": TOOLS, "response_format": format}
    assert chat(client, "5 or so", **more)["message"]["content"] == "5"
    call = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    calls = chat(client, call, **more)["message"]["tool_calls"]
    assert [each["function"]["name"] for each in calls] == ["get_time"]


def test_none_hides_the_tools(client: httpx.Client) -> None:
    choice = chat(client, "hello", tools=TOOLS, tool_choice="none")
    assert choice["message"]["content"] == "hello"


def test_ollama_chat_takes_tool_choice_too(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": "tools", "messages": messages, "tools": TOOLS, "stream": False}
    message = client.post("/api/chat", json={**body, "tool_choice": "required"}).json()["message"]
    assert message["tool_calls"]
    none = client.post("/api/chat", json={**body, "tool_choice": "none"}).json()["message"]
    assert none["content"] == "hello"


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tool_choice": "perhaps", "tools": TOOLS}),
        ("tool_choice", {"tool_choice": {"type": "function"}, "tools": TOOLS}),
        (
            "tool_choice",
            {"tool_choice": {"type": "function", "function": {"name": "x"}}, "tools": TOOLS},
        ),
        ("tool_choice", {"tool_choice": {"type": "allowed_tools"}, "tools": TOOLS}),
        ("guided_regex", {"guided_regex": "a", "tools": TOOLS}),
    ],
)
def test_a_choice_that_cannot_be_kept_is_refused(
    client: httpx.Client, param: str, fields: dict[str, Any]
) -> None:
    assert refusal(client, **fields)["param"] == param


def test_a_tool_with_an_unsupported_schema_is_refused_with_the_path(client: httpx.Client) -> None:
    wrong = {
        "type": "object",
        "properties": {"a": {"contains": {"type": "string"}, "unevaluatedItems": False}},
    }
    tools = [*TOOLS, {"type": "function", "function": {"name": "f", "parameters": wrong}}]
    error = refusal(client, tools=tools, tool_choice="required")
    assert error["param"] == "tools.2.function.parameters.properties.a"
