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


SYSTEM = "You are a pirate, and you never say a word that a pirate would not say. " * 4


def conversation(
    daemon: RunningDaemon, key: str, *turns: tuple[str, str], **fields: Any
) -> tuple[int, Any]:
    """The status, and the cached tokens or the answer that refuses."""
    messages = [{"role": role, "content": content} for role, content in turns]
    body = {"model": "echo", "max_tokens": 1, "messages": messages, **fields}
    answer = httpx.post(
        f"{daemon.url}/v1/chat/completions",
        json=body,
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
    )
    if answer.status_code != 200:
        return answer.status_code, answer.json()["error"]
    return 200, answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_keys_share_what_the_modelfile_says_and_nothing_behind_it(daemon: RunningDaemon) -> None:
    made = {"model": "pirate", "from": "echo", "system": SYSTEM, "stream": False}
    assert httpx.post(f"{daemon.url}/api/create", json=made).status_code == 200
    a, b = add(daemon, "a"), add(daemon, "b")
    for text, unlike in ((SECRET, "~"), (f"a{SECRET}", "+"), (f"0{SECRET}", "=")):
        _, first = conversation(daemon, a, ("user", text), model="pirate")
        assert first < len(SYSTEM) + len(SECRET) / 2
        _, other = conversation(daemon, b, ("user", unlike), model="pirate")
        _, found = conversation(daemon, b, ("user", text), model="pirate")
        assert len(SYSTEM) <= found == other, "a guess is found like anything else"
        _, again = conversation(daemon, a, ("user", text), model="pirate")
        assert again >= len(SYSTEM) + len(SECRET)


def test_keys_share_what_an_admin_shares_and_nothing_behind_it(daemon: RunningDaemon) -> None:
    a, b, boss = add(daemon, "a"), add(daemon, "b"), add(daemon, "boss", "admin")
    own = (("system", SYSTEM), ("user", SECRET))
    for key in (a, b):
        _, found = conversation(daemon, key, *own)
        assert found < len(SYSTEM) / 2, "system messages of a key are its own"
    assert conversation(daemon, boss, *own, shared_prefix=True)[0] == 200
    c = add(daemon, "c")
    _, other = conversation(daemon, c, own[0], ("user", "~"))
    _, found = conversation(daemon, c, *own)
    assert len(SYSTEM) <= found == other
    cached(daemon, boss, "/v1/completions", SECRET[1:], shared_prefix=True)
    assert cached(daemon, b, "/v1/completions", SECRET[1:] + "more") >= len(SECRET) - 1


def test_only_an_admin_shares_and_only_what_can_be(daemon: RunningDaemon) -> None:
    a, boss = add(daemon, "a"), add(daemon, "boss", "admin")
    status, error = conversation(daemon, a, ("system", SYSTEM), ("user", "x"), shared_prefix=True)
    assert status == 400
    assert error["param"] == "shared_prefix"
    assert "scope admin" in error["message"]
    status, error = conversation(daemon, boss, ("user", "x"), shared_prefix=True)
    assert status == 400
    assert "system message" in error["message"]
