"""Fields of /api/generate: context, the tokens to go on from, and a template for one prompt."""

from __future__ import annotations

from typing import Any

import httpx
import pytest


def generate(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    options = {"temperature": 0, "num_predict": 40}
    body = {"model": "echo", "stream": False, "options": options, **fields}
    answer = client.post("/api/generate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tokens(client: httpx.Client, text: str) -> list[int]:
    body = {"model": "echo", "prompt": text}
    return list(client.post("/tokenize", json=body).json()["tokens"])


def test_the_answer_tells_the_tokens_of_prompt_and_answer(client: httpx.Client) -> None:
    told = generate(client, prompt="hé")
    said = "<|im_start|>user\nhé<|im_end|>\n<|im_start|>assistant\nhé"
    assert told["context"] == tokens(client, said)


def test_a_stream_tells_them_at_its_end_only(client: httpx.Client) -> None:
    body = {"model": "echo", "prompt": "hi"}
    with client.stream("POST", "/api/generate", json=body) as answer:
        *others, last = list(answer.iter_lines())
    assert '"context":[' in last
    assert not any('"context"' in line for line in others)


def test_the_next_prompt_goes_on_from_them(client: httpx.Client) -> None:
    first = generate(client, prompt="one")
    second = generate(client, prompt="two<|hash|>", context=first["context"])
    said = (
        "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\none"
        "<|im_start|>user\ntwo<|hash|><|im_end|>\n<|im_start|>assistant\n"
    )
    asked = {"model": "echo", "prompt": said, "temperature": 0, "max_tokens": 40}
    alone = client.post("/v1/completions", json=asked).json()["choices"][0]["text"]
    assert second["response"] == alone
    assert second["context"][: len(first["context"])] == first["context"]
    assert second["prompt_eval_count"] == len(tokens(client, said))


def test_raw_prompts_and_chats_tell_none(client: httpx.Client) -> None:
    assert "context" not in generate(client, prompt="x", raw=True)
    body = {"model": "echo", "messages": [{"role": "user", "content": "x"}], "stream": False}
    assert "context" not in client.post("/api/chat", json=body).json()


@pytest.mark.parametrize("context", [[-1], [10**6], ["a"], [1.5]])
def test_what_are_no_tokens_is_refused(client: httpx.Client, context: list[Any]) -> None:
    body = {"model": "echo", "prompt": "x", "context": context, "stream": False}
    assert client.post("/api/generate", json=body).status_code == 400


def test_a_template_of_the_request_stands_in_for_the_models(client: httpx.Client) -> None:
    told = generate(client, prompt="hé", template="{{ .System }}|{{ .Prompt }}", system="S")
    assert told["response"] == "S|hé"
    body = {"model": "echo", "prompt": "x", "template": "{{ .Prompt", "stream": False}
    refused = client.post("/api/generate", json=body)
    assert (refused.status_code, refused.json()["param"]) == (400, "template")
    chat = {"messages": [{"role": "user", "content": "x"}], "chat_template": "<{{ messages }}>"}
    answer = client.post("/v1/chat/completions", json={"model": "echo", **chat}).json()
    assert answer["choices"][0]["message"]["content"].startswith("<[{")
