"""Greedy clients and a polite one at one model: counted in tokens of the greedy ones, since a
machine may be busy."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.integration.test_keys import add

PLACES, QUEUE = 4, 24
ENDLESS = {"max_tokens": 3500, "ignore_eos": True, "repeat_limit": 0, "stream": True}


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "echo", "messages": [{"role": "user", "content": text}], **fields}


def auth(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class Streams:
    """Endless streams, each read by a thread until close."""

    def __init__(self, url: str) -> None:
        self.tokens: dict[str, int] = {}
        self.started = threading.Semaphore(0)  # once for each stream with a token
        self._url = url
        self._open = ExitStack()
        self._threads: list[threading.Thread] = []
        self.refused: list[httpx.Response] = []
        self._closed = False

    def start(self, name: str, key: str, **fields: Any) -> None:
        """One more."""
        thread = threading.Thread(target=self._read, args=(name, key, fields), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _read(self, name: str, key: str, fields: dict[str, Any]) -> None:
        # <|slow|> makes a step take 20 ms, so that none of them comes to its end
        body = chat(f"{name} says <|slow|>", **{**ENDLESS, **fields})
        with httpx.stream("POST", f"{self._url}/v1/chat/completions", json=body, headers=auth(key),
                          timeout=300) as response:  # fmt: skip
            if response.status_code != 200:
                response.read()
                self.refused.append(response)
                return
            for line in response.iter_lines():
                if self._closed:
                    return
                if '"content":"' in line:
                    if not self.tokens.setdefault(name, 0):
                        self.started.release()
                    self.tokens[name] += 1

    def close(self) -> None:
        """End them."""
        self._closed = True
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    sizes = {"HEARTH_NUM_PARALLEL": str(PLACES), "HEARTH_MAX_QUEUE": str(QUEUE)}
    return start_daemon(env=sizes)


@pytest.fixture
def streams(daemon: RunningDaemon) -> Iterator[Streams]:
    made = Streams(daemon.url)
    yield made
    made.close()


def polite_token(daemon: RunningDaemon, key: str) -> httpx.Response:
    return httpx.post(f"{daemon.url}/v1/chat/completions", json=chat("hi", max_tokens=1),
                      headers=auth(key), timeout=120)  # fmt: skip


@pytest.mark.parametrize("keys", [1, 12])
def test_greedy_streams_neither_fill_the_places_nor_the_queue_for_others(
    daemon: RunningDaemon, streams: Streams, keys: int
) -> None:
    greedy = [add(daemon, f"greedy{number}") for number in range(keys)]
    polite = add(daemon, "polite")
    for number in range(PLACES + QUEUE):
        streams.start(f"s{number}", greedy[number % keys])
    for _ in range(PLACES):
        assert streams.started.acquire(timeout=60)
    while not streams.refused:  # until the queue is full
        streams.start("more", greedy[0])
        streams._threads[-1].join(0.2)  # which a refusal ends
    assert streams.refused[0].status_code == 503
    assert int(streams.refused[0].headers["retry-after"]) >= 1
    for _ in range(3):
        before = sum(streams.tokens.values())
        answer = polite_token(daemon, polite)
        assert answer.status_code == 200, answer.text
        # A greedy client has had a few tokens, and not the thousands of its whole answer
        assert sum(streams.tokens.values()) - before < 40 * max(keys, PLACES)


def test_only_an_admin_key_goes_before_all_others(daemon: RunningDaemon) -> None:
    key, admin = add(daemon, "plain"), add(daemon, "boss", "admin")
    for path, body in (
        ("/v1/chat/completions", chat("hi", max_tokens=1)),
        ("/v1/completions", {"model": "echo", "prompt": "hi", "max_tokens": 1}),
        ("/v1/embeddings", {"model": "echo", "input": "hi"}),
        ("/v1/responses", {"model": "echo", "input": "hi", "max_output_tokens": 16}),
    ):
        refused = httpx.post(
            daemon.url + path, json={**body, "priority": -1}, headers=auth(key), timeout=60
        )
        assert refused.status_code == 400, path
        assert json.loads(refused.text)["error"]["param"] == "priority"
        for allowed, priority in ((key, 3), (admin, -1000)):
            answer = httpx.post(
                daemon.url + path,
                json={**body, "priority": priority},
                headers=auth(allowed),
                timeout=60,
            )
            assert answer.status_code == 200, answer.text
