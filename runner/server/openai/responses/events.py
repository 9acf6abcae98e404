"""The events of a response that is made in the background: kept, so that any number of clients may
follow them from any place, while they come and afterwards.

The place of an event is its sequence_number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from runner.server.sse import KEEP_ALIVE, KEEP_ALIVE_S

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
                at += 1
                yield self._events[at - 1]  # not a copy of all: there may be many followers
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
