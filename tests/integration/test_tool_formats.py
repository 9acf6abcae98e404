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
