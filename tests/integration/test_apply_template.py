"""POST /apply-template and hearth render MODEL, against a real daemon."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon
from tests.echo_models import echo_gguf
from tests.integration.cli_process import hearth, of_daemon

USER = {"role": "user", "content": "hi"}
GO = (
    "{{ if .Tools }}{{ .Tools }}{{ end }}{{ range .Messages }}<{{ .Role }}>{{ .Thinking }}"
    "{{ .Content }}{{ range .ToolCalls }}{{ .Function.Name }}{{ .Function.Arguments }}{{ end }}"
    "{{ end }}<assistant>{{ if .IsThinkSet }}{{ .Think }}{{ end }}"
)


def apply(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/apply-template", json={"model": "echo", "messages": [USER], **body})


def create(client: httpx.Client, name: str, **more: Any) -> None:
    """Make an echo model of that name."""
    content = echo_gguf(salt=name)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert client.post(f"/api/blobs/{digest}", content=content).status_code in (200, 201)
    body = {"model": name, "files": {"m.gguf": digest}, "stream": False, **more}
    assert client.post("/api/create", json=body).status_code == 200


def test_the_prompt_is_answered(client: httpx.Client) -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert apply(client).json() == {"prompt": prompt}
    without = apply(client, add_generation_prompt=False).json()["prompt"]
    assert without == "<|im_start|>user\nhi<|im_end|>\n"


def test_a_template_in_go_makes_the_prompt(client: httpx.Client) -> None:
    create(client, "render-go", template=GO, system="S")
    call = {"function": {"name": "f", "arguments": {"b": 1, "a": "<"}}}
    messages = [USER, {"role": "assistant", "thinking": "hm", "tool_calls": [call]}]
    tools = [{"type": "function", "function": {"name": "f", "description": "d"}}]
    answer = apply(client, model="render-go", messages=messages, tools=tools, think=True).json()
    refused = apply(client, model="render-go", add_generation_prompt=False)
    assert refused.status_code == 400
    assert "always adds the generation prompt" in refused.text
    assert answer["prompt"] == (
        '[{"type":"function","function":{"name":"f","description":"d","parameters":'
        '{"type":"","properties":null}}}]<system>S<user>hi<assistant>hm'
        'f{"a":"\\u003c","b":1}<assistant>true'
    )


def test_the_model_gets_what_is_shown(client: httpx.Client) -> None:
    create(client, "render-same", template="{{ .Prompt }}|")
    shown = apply(client, model="render-same").json()["prompt"]
    body = {"model": "render-same", "messages": [USER], "stream": False}
    answer = client.post("/api/chat", json=body).json()
    assert shown == "hi|"
    assert answer["prompt_eval_count"] == len(shown) + 1


def test_the_middle_is_filled_in_by_models_with_a_place_for_it(client: httpx.Client) -> None:
    create(client, "render-insert", template="<p>{{ .Prompt }}<s>{{ .Suffix }}<m>")
    shown = client.post("/api/show", json={"model": "render-insert"}).json()
    assert shown["capabilities"] == ["completion", "embedding", "insert"]
    body = {"model": "render-insert", "prompt": "a", "suffix": "b", "stream": False}
    answer = client.post("/api/generate", json=body).json()
    assert answer["prompt_eval_count"] == len("<p>a<s>b<m>") + 1
    asked = {"model": "render-insert", "prompt": ["a"], "suffix": "b", "max_tokens": 1}
    usage = client.post("/v1/completions", json=asked).json()["usage"]
    assert usage["prompt_tokens"] == answer["prompt_eval_count"]
    response = client.post("/api/generate", json={**body, "model": "echo"})
    assert response.status_code == 400
    assert "does not support insert" in response.text


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"content": "x"}]}, 400, "role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "is not supported",
        ),
        ({"model": "nope"}, 404, "nope"),
        ({"tools": [{"type": "function"}]}, 400, "does not support tools"),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "f", "arguments": "{"}}],
                    }
                ]
            },
            400,
            "not a JSON object",
        ),
        ({"chat_template_kwargs": {"messages": []}}, 400, "set by hearth"),
    ],
)
def test_what_cannot_be_rendered_is_told(
    client: httpx.Client, body: dict[str, Any], status: int, told: str
) -> None:
    response = apply(client, **body)
    assert response.status_code == status, response.text
    assert told in response.text


def test_a_faulty_template_is_refused_when_the_model_is_made(client: httpx.Client) -> None:
    body = {"model": "render-bad", "from": "echo", "template": "{{ if .Prompt }}", "stream": False}
    response = client.post("/api/create", json=body)
    assert response.status_code == 400
    assert "line 1: unexpected EOF" in response.text


def test_render_prints_the_prompt_and_nothing_else(
    shared_daemon: RunningDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "m.json"
    file.write_text(json.dumps([USER]), encoding="utf-8")
    ran = hearth(of_daemon(shared_daemon), "render", "echo", "--messages", str(file))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
