from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from runner.server import body_pace
from runner.server.body_budget import BodyBudget
from runner.server.body_pace import MIN_BYTES, BodyPace
from runner.server.errors import HttpError
from runner.server.http_request import ClientDisconnected, HttpRequest


class Sender:
    """Sends parts of a body, and then nothing more."""

    def __init__(self, parts: Iterable[bytes], wait_s: float = 0.0) -> None:
        self._parts = iter(parts)
        self._wait_s = wait_s

    async def __call__(self) -> Any:
        part = next(self._parts, None)
        await asyncio.sleep(3600 if part is None else self._wait_s)
        return {"type": "http.request", "body": part, "more_body": True}


async def read(sender: Sender, max_s: float) -> int:
    pace, size = BodyPace(max_s), 0
    while True:
        size += len((await pace.receive(sender))["body"])


@pytest.mark.parametrize("part", [b"", b"a", b"a" * (MIN_BYTES // 100)])
async def test_a_body_that_trickles_is_refused_with_the_figures(
    monkeypatch: pytest.MonkeyPatch, part: bytes
) -> None:
    monkeypatch.setattr(body_pace, "WINDOW_S", 0.1)
    with pytest.raises(HttpError, match=r"came in 0\.1 s; at least 32768 must") as caught:
        await read(Sender([part] * 1_000_000, 0.01), 3600)
    assert (caught.value.status, caught.value.headers) == (408, {"connection": "close"})


async def test_a_body_that_comes_fast_enough_goes_on_until_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body_pace, "WINDOW_S", 0.2)
    with pytest.raises(HttpError, match=r"was not received within 0\.5 s"):
        await read(Sender([b"a" * MIN_BYTES] * 1_000_000, 0.02), 0.5)


async def test_the_time_in_which_nobody_asks_for_more_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body_pace, "WINDOW_S", 0.05)
    pace, sender = BodyPace(0.05), Sender([b"a"] * 10)
    for _ in range(10):
        await asyncio.sleep(0.01)
        assert (await pace.receive(sender))["body"] == b"a"


def request_of(receive: Any, path: str) -> HttpRequest:
    services: Any = SimpleNamespace(bodies=BodyBudget())
    return HttpRequest({"path": path}, receive, None, services)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/api/chat", "/api/blobs/sha256:0", "/v1/files"])
async def test_every_body_has_it(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(body_pace, "WINDOW_S", 0.02)
    request = request_of(Sender([b"{"]), path)
    whole = request.body() if path == "/api/chat" else anext(behind_the_first(request))
    with pytest.raises(HttpError, match="1 bytes of the request body came"):
        await whole


async def behind_the_first(request: HttpRequest) -> AsyncIterator[bytes]:
    chunks = request.chunks()
    assert await anext(chunks) == b"{"
    yield await anext(chunks)


async def test_a_client_that_leaves_is_no_slow_one() -> None:
    async def gone() -> Any:
        return {"type": "http.disconnect"}

    request = request_of(gone, "/api/chat")
    with pytest.raises(ClientDisconnected):
        await request.body()
