"""RENDERER and PARSER through a real daemon and worker."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import httpx
import pytest

from tests.echo_models import echo_gguf

TURN = (
    "<|im_start|>user\n{{ messages[-1].content }}<|im_end|>\n<|im_start|>assistant\n"
    "{# tools, </think> #}"
)
TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}},
}


def create(client: httpx.Client, name: str, **fields: Any) -> httpx.Response:
    content = echo_gguf(salt=name)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert client.post(f"/api/blobs/{digest}", content=content).status_code in (200, 201)
    body = {"model": name, "files": {"m.gguf": digest}, "stream": False, **fields}
    return client.post("/api/create", json=body)


def asked(model: str, text: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


@pytest.mark.parametrize(
    ("field", "name", "near"),
    [("parser", "functiongema", "functiongemma"), ("renderer", "qwen3-codr", "qwen3-coder")],
)
def test_an_unknown_name_is_refused_when_the_model_is_made(
    client: httpx.Client, field: str, name: str, near: str
) -> None:
    answer = create(client, "wrong", **{field: name})
    assert answer.status_code == 400
    assert f"'{name}'; did you mean {near}" in answer.text
    assert "wrong" not in client.get("/api/tags").text


def test_a_built_in_renderer_writes_the_prompt(client: httpx.Client) -> None:
    assert create(client, "rendered", renderer="functiongemma").status_code == 200
    body = asked("rendered", "hi", tools=[TOOL])
    prompt = client.post("/apply-template", json=body).json()["prompt"]
    assert prompt.startswith("<bos><start_of_turn>developer\nYou can do function calling")
    assert prompt.endswith("<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n")
    assert "tools" in client.post("/api/show", json={"model": "rendered"}).json()["capabilities"]


def test_parser_names_the_notation_of_calls_on_every_surface(client: httpx.Client) -> None:
    assert create(client, "caller", template=TURN, parser="olmo3").status_code == 200
    text = "I add.\n<function_calls>add(a=1)\nadd(a=2)</function_calls>"
    body = asked("caller", text, tools=[TOOL])
    choice = client.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I add."
    calls = [call["function"] for call in choice["message"]["tool_calls"]]
    assert [json.loads(call["arguments"]) for call in calls] == [{"a": 1}, {"a": 2}]
    answer = client.post("/api/chat", json={**body, "stream": False}).json()
    assert answer["message"]["content"] == "I add."
    called = [call["function"] for call in answer["message"]["tool_calls"]]
    assert [(call["index"], call["arguments"]) for call in called] == [(0, {"a": 1}), (1, {"a": 2})]


def test_usage_tells_the_tokens_of_the_reasoning(client: httpx.Client) -> None:
    assert create(client, "thinks", template=TURN).status_code == 200
    body = asked("thinks", "<think>hm</think>yes")
    usage = client.post("/v1/chat/completions", json=body).json()["usage"]
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    assert 2 <= reasoning < usage["completion_tokens"]
    plain = client.post("/v1/chat/completions", json=asked("thinks", "yes")).json()["usage"]
    assert plain["completion_tokens_details"]["reasoning_tokens"] == 0


PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
LAST = "{{ messages[-1].content }}"
CALL = '{"name": "add", "arguments": {"a": 1}}'


def test_a_template_without_tools_gets_them_in_the_system_prompt(client: httpx.Client) -> None:
    assert create(client, "plain", template=PLAIN + "{# system #}").status_code == 200
    body = asked("plain", "1+0?", tools=[TOOL])
    prompt = client.post("/apply-template", json=body).json()["prompt"]
    assert prompt.startswith("<system>You can call functions.")
    assert '{"name": "add", ' in prompt
    assert prompt.endswith("<user>1+0?")
    turns = [
        *body["messages"],
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {
            "name": "add", "arguments": '{"a": 1}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]  # fmt: skip
    prompt = client.post("/apply-template", json={**body, "messages": turns}).json()["prompt"]
    assert prompt.endswith(f"<user>1+0?<assistant>{CALL}<user>The result of add:\n1")


def test_a_generic_call_is_a_call_on_every_surface(client: httpx.Client) -> None:
    assert create(client, "generic", template=LAST + "{# system #}").status_code == 200
    body = asked("generic", CALL, tools=[TOOL])
    choice = client.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    answer = client.post("/api/chat", json={**body, "stream": False}).json()
    assert answer["message"]["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    tool = {"name": "add", "input_schema": {"type": "object"}}
    answer = client.post("/v1/messages", json={**body, "max_tokens": 90, "tools": [tool]}).json()
    assert answer["content"][0]["input"] == {"a": 1}
    given = {"model": "generic", "input": CALL, "tools": [{"type": "function", **TOOL["function"]}]}
    items = client.post("/v1/responses", json=given).json()["output"]
    assert [item["type"] for item in items] == ["function_call"]
    required = {**asked("generic", "hello", tools=[TOOL]), "tool_choice": "required"}
    choice = client.post("/v1/chat/completions", json=required).json()["choices"][0]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "add"


@pytest.mark.parametrize(
    ("tool_format", "template", "reason", "listed"),
    [
        ("none", TURN, "tool_format is none", False),
        ("native", LAST, "does not mention them", False),
        ("generic", TURN, None, True),
        ("auto", TURN, None, True),
        ("auto", LAST, None, False),
    ],
)
def test_tool_format_chooses(
    client: httpx.Client, tool_format: str, template: str, reason: str | None, listed: bool
) -> None:
    parameters = {"tool_format": tool_format}
    name = f"chosen-{tool_format}-{len(template)}"
    assert create(client, name, template=template, parameters=parameters).status_code == 200
    shown = client.post("/api/show", json={"model": name}).json()["capabilities"]
    assert ("tools" in shown) is listed
    answer = client.post("/v1/chat/completions", json=asked(name, CALL, tools=[TOOL]))
    if reason is not None:
        assert answer.status_code == 400
        assert reason in answer.json()["error"]["message"]
        return
    assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"


def test_a_base_model_has_no_tools(client: httpx.Client) -> None:
    assert create(client, "base").status_code == 200
    answer = client.post("/v1/chat/completions", json=asked("base", "hi", tools=[TOOL]))
    assert answer.status_code == 400
    assert "it is a base model" in answer.json()["error"]["message"]
