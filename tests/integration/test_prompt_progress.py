"""return_progress: how far a long prompt is, through a real daemon and worker, on every surface."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

LETTERS = 1300  # three steps of 512 tokens

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "a" * LETTERS}]}
SURFACES = [
    ("/api/chat", CHAT, {"options": {"num_predict": 3, "num_ctx": 2048}}),
    ("/api/generate", {"prompt": "a" * LETTERS}, {"options": {"num_predict": 3, "num_ctx": 2048}}),
    ("/v1/chat/completions", CHAT, {"max_tokens": 3}),
    ("/v1/completions", {"prompt": "a" * LETTERS}, {"max_tokens": 3}),
]


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def said(event: dict[str, Any]) -> str:
    for choice in event.get("choices", ()):
        return str(choice["delta"].get("content", "") if "delta" in choice else choice["text"])
    return str(event.get("response", event.get("message", {}).get("content", "")))


@pytest.mark.parametrize(("path", "prompt", "more"), SURFACES)
def test_a_stream_begins_with_how_much_of_the_prompt_is_computed(
    client: httpx.Client, path: str, prompt: dict[str, Any], more: dict[str, Any]
) -> None:
    body = {"model": "echo", **prompt, **more, "stream": True}
    first = events(client.post(path, json={**body, "return_progress": True}))
    reports = [event["prompt_progress"] for event in first if "prompt_progress" in event]
    assert reports, first
    total, cached = reports[0]["total"], reports[0]["cache"]
    assert total >= LETTERS
    processed = [report["processed"] for report in reports]
    assert processed == sorted(set(processed))
    assert processed[0] == cached
    assert cached < processed[1] <= cached + 512
    assert processed[-1] == total
    assert all({"total", "cache", "processed", "time_ms"} == set(report) for report in reports)
    texts = [index for index, event in enumerate(first) if said(event)]
    last = max(index for index, event in enumerate(first) if "prompt_progress" in event)
    assert last < texts[0]
    assert "prompt_progress" not in client.post(path, json=body).text


@pytest.mark.parametrize(("path", "prompt", "more"), SURFACES)
def test_progress_of_an_answer_that_is_not_streamed_is_refused_by_name(
    client: httpx.Client, path: str, prompt: dict[str, Any], more: dict[str, Any]
) -> None:
    body = {"model": "echo", **prompt, **more, "stream": False, "return_progress": True}
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert "return_progress requires" in answer.text
