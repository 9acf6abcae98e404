"""cache_salt: who does not know it does not find what was computed under it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

TEXT = "a prompt that is long enough to be worth sharing, whoever asks for it"


def cached(client: httpx.Client, path: str, prompt: str, salt: str | None) -> int:
    body: dict[str, Any] = {"model": "echo", "max_tokens": 1}
    if path == "/v1/completions":
        body["prompt"] = prompt
    elif path == "/v1/responses":
        body |= {"input": prompt, "max_output_tokens": 1, "store": False}
    else:
        body["messages"] = [{"role": "user", "content": prompt}]
    if salt is not None:
        body["cache_salt"] = salt
    usage = client.post(path, json=body).json()["usage"]
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    return int(details["cached_tokens"])


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
def test_prefixes_are_shared_under_one_salt_only(client: httpx.Client, path: str) -> None:
    prompt = f"{path} {TEXT}"
    first = cached(client, path, prompt, f"{path} one")
    assert cached(client, path, prompt, f"{path} one") >= len(prompt) > first
    assert cached(client, path, prompt, f"{path} two") < len(prompt)
    assert cached(client, path, prompt, None) < len(prompt)
    assert cached(client, path, prompt, None) >= len(prompt)


def test_an_empty_salt_is_refused(client: httpx.Client) -> None:
    body = {"model": "echo", "prompt": "x", "cache_salt": ""}
    assert client.post("/v1/completions", json=body).status_code == 400
