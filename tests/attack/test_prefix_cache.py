"""Whether a key learns by cached tokens what another one has sent."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.integration.test_keys import add

SECRET = "the board has decided to sell the company to its largest competitor " * 4


def cached(daemon: RunningDaemon, key: str, path: str, text: str, **fields: Any) -> int:
    body: dict[str, Any] = {"model": "echo", "max_tokens": 1, **fields}
    if path == "/v1/completions":
        body["prompt"] = text
    elif path == "/v1/responses":
        body |= {"input": text, "max_output_tokens": 16}
        del body["max_tokens"]
    else:
        body["messages"] = [{"role": "user", "content": text}]
    answer = httpx.post(
        daemon.url + path, json=body, headers={"Authorization": f"Bearer {key}"}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    if path == "/v1/messages":
        return int(usage.get("cache_read_input_tokens") or 0)
    return int(
        (usage.get("prompt_tokens_details") or usage["input_tokens_details"])["cached_tokens"]
    )


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    return start_daemon()


def test_a_key_does_not_learn_what_another_has_sent(daemon: RunningDaemon) -> None:
    keys = [add(daemon, name) for name in ("a", "b")]
    admin = add(daemon, "boss", "admin")
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"):
        first = [cached(daemon, key, path, f"{path} {SECRET}") for key in (*keys, admin)]
        again = [cached(daemon, key, path, f"{path} {SECRET}") for key in (*keys, admin)]
        assert max(first) < len(SECRET) / 4 < len(SECRET) < min(again), path


def test_a_key_is_not_found_by_the_salt_that_another_has(daemon: RunningDaemon) -> None:
    a, b = add(daemon, "a"), add(daemon, "b")
    for key in (a, b):
        assert cached(daemon, key, "/v1/completions", SECRET, cache_salt="same") < 10
