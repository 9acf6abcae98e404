"""The events of a response that is made in the background: kept, so that any number of clients may
follow them from any place, while they come and afterwards.

The place of an event is its sequence_number.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from urllib.parse import parse_qs

from runner.errors import InvalidRequest
from runner.server.http_request import HttpRequest
from runner.server.stream import EVENT_STREAM, KEEP_ALIVE, KEEP_ALIVE_S, WRITE_TIMEOUT_S

_END = b"\n\n"


class EventLog:
    """The events of one response, and whether more may come."""

    def __init__(self, events: bytes = b"", *, closed: bool = False) -> None:
        self._events = _split(events)
        self._closed = closed
        self._changed = asyncio.Event()

    def add(self, events: bytes) -> None:
        """More of them, whole ones."""
        self._events += _split(events)
        self._wake()

    def close(self) -> None:
        """No more come."""
        self._closed = True
        self._wake()

    def all(self) -> bytes:
        """All that have come."""
        return b"".join(self._events)

    async def follow(self, after: int) -> AsyncGenerator[bytes, None]:
        """The events after that place, as they come; a comment where none does for a while."""
        at = after + 1
        while True:
            changed = self._changed
            if at < len(self._events):
                fresh, at = self._events[at:], len(self._events)
                yield b"".join(fresh)
            elif self._closed:
                return
            else:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        await changed.wait()
                except TimeoutError:
                    yield KEEP_ALIVE

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _split(events: bytes) -> list[bytes]:
    return [each + _END for each in events.split(_END) if each]


async def send_events(http: HttpRequest, log: EventLog, after: int = -1) -> None:
    """Stream the events of a log after that place. A client that goes away, or reads nothing for
    WRITE_TIMEOUT_S, ends its own stream only."""
    async with http.cancelled_on_disconnect(), contextlib.aclosing(log.follow(after)) as events:
        await http.start(EVENT_STREAM)
        async for data in events:
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await http.write(data)
            except TimeoutError:
                http.abandon()
                return
        await http.finish()


def wanted_from(query: bytes) -> int | None:
    """The place that a query asks to follow the events from: -1 is the beginning, None: it asks
    for the response itself. Raises InvalidRequest."""
    fields = parse_qs(query.decode("latin-1"), max_num_fields=20)
    streamed, after = fields.get("stream", ["false"])[-1], fields.get("starting_after", [""])[-1]
    if streamed.lower() not in ("true", "false"):
        raise InvalidRequest(f"stream={streamed[:20]!r} is not true or false", param="stream")
    if after and not (after.isascii() and after.isdigit() and len(after) < 10):
        raise InvalidRequest(
            f"starting_after={after[:20]!r} is no sequence_number", param="starting_after"
        )
    if streamed.lower() == "true":
        return int(after) if after else -1
    if after:
        raise InvalidRequest("starting_after needs stream=true", param="starting_after")
    return None
