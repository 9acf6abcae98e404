"""A session of the bridge ends when its replica is silent, in either direction."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from runner.cluster import bridge_session
from runner.cluster.bridge_session import BridgeSession
from runner.errors import WorkerCrashed, from_wire
from runner.worker.frame_reader import FrameReader

SILENCE_S = 0.3


async def beats() -> AsyncIterator[bytes]:
    """A replica that lives."""
    while True:
        yield b""
        await asyncio.sleep(0.05)


async def silence() -> AsyncIterator[bytes]:
    yield b""
    await asyncio.Event().wait()


async def answered(*_: Any) -> None:
    return


async def unanswered(*_: Any) -> None:
    await asyncio.Event().wait()


class Handle:
    """In place of Serve's handle of a deployment."""

    def __init__(
        self, session: Callable[[], AsyncIterator[bytes]], feed: Callable[..., Awaitable[None]]
    ) -> None:
        self._session, self._feed = session, feed
        self._method = ""

    def options(self, method_name: str, **_: Any) -> Handle:
        made = Handle(self._session, self._feed)
        made._method = method_name
        return made

    def remote(self, *values: Any) -> Any:
        if self._method == "session":
            return self._session()
        if self._method == "feed":
            return self._feed(*values)
        return None


async def ended(
    handle: Handle, leave_after_s: float | None = None
) -> tuple[float, Exception] | None:
    """When a session ends, in seconds, and what the daemon is told; None: it has not when the
    daemon leaves."""
    served: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await BridgeSession(handle, "r", (reader, writer), SILENCE_S).run()
        served.set_result(None)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server, asyncio.timeout(20):
        begun = time.monotonic()
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        frame = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(leave_after_s):
                frame = await FrameReader(reader).read()
        took_s = time.monotonic() - begun
        writer.close()
        await served
    return None if frame is None else (took_s, from_wire(frame["error"]))


@pytest.mark.parametrize(
    "handle", [Handle(silence, answered), Handle(beats, unanswered)], ids=["no beat", "no answer"]
)
async def test_silence_in_either_direction_ends_it(
    handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_session, "PING_S", 0.1)
    found = await ended(handle)
    assert found is not None
    took_s, error = found
    assert isinstance(error, WorkerCrashed)
    assert "silent for 0.3 s" in str(error)
    assert took_s >= SILENCE_S
    assert took_s < 10


async def test_a_replica_that_beats_and_answers_keeps_its_session() -> None:
    assert await ended(Handle(beats, answered), leave_after_s=4 * SILENCE_S) is None
