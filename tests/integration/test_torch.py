"""ember on both backends through a real daemon: PARAMETER backend torch, the same answers."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

QUESTIONS = ("What is hearth?", "What is 12 + 7?", "Spell the word fire.")
GREEDY = {"temperature": 0, "num_predict": 48}


@pytest.fixture(autouse=True)
def torch_model(client: httpx.Client) -> None:
    body = {
        "model": "glow",
        "from": "ember",
        "parameters": {"backend": "torch", "num_ctx": 512, "num_parallel": 4},
        "stream": False,
    }
    created = client.post("/api/create", json=body)
    assert created.status_code == 200, created.text


def answer(client: httpx.Client, model: str, text: str, **options: Any) -> dict[str, Any]:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "stream": False,
        "options": {**GREEDY, **options},
    }
    response = client.post("/api/chat", json=body, timeout=60)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_ember_gives_the_same_greedy_answers_on_both_backends(client: httpx.Client) -> None:
    for question in QUESTIONS:
        left, right = (answer(client, model, question) for model in ("glow", "ember"))
        assert left["message"]["content"] == right["message"]["content"] != ""
        assert left["prompt_eval_count"] == right["prompt_eval_count"]


def test_a_conversation_is_not_computed_again_and_can_be_cut_by_a_schema(
    client: httpx.Client,
) -> None:
    messages = [{"role": "user", "content": "Tell me about " + "hearth and fire " * 12}]
    body: dict[str, Any] = {"model": "glow", "messages": messages, "temperature": 0}
    body |= {"max_tokens": 32}
    first = client.post("/v1/chat/completions", json=body, timeout=60).json()
    again = client.post("/v1/chat/completions", json=body, timeout=60).json()
    assert again["choices"][0]["message"] == first["choices"][0]["message"]
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= again["usage"]["prompt_tokens"] - 1
    choice = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["x", "y"]}}}
    found = client.post(
        "/v1/chat/completions", json={**body, "response_format": choice}, timeout=60
    ).json()
    assert found["choices"][0]["message"]["content"] in ('"x"', '"y"')
