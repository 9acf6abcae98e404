"""Frames to and from a worker over its socket, without a task or a copy per frame.

Knows nothing of what the frames mean. A worker runs native code on untrusted files, so whatever
it sends is checked; the first thing that is no frame ends the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from pydantic_core import from_json

from runner.models.encoded_frame import EncodedFrame
from runner.worker.protocol import (
    LENGTH,
    MAX_FRAME_BYTES,
    ProtocolError,
    checked_frame,
    decode_body,
)


def _decoded(body: bytes) -> dict[str, Any]:
    """As decode_body, which takes twice as long."""
    try:
        frame = from_json(body, cache_strings="keys")  # not the id of each request
    except ValueError:  # a lone surrogate, or what is no frame
        return decode_body(body)
    return checked_frame(frame)


class FrameConnection(asyncio.Protocol):
    """on_frame gets each frame and may raise ProtocolError, KeyError, TypeError or ValueError
    when it makes no sense; on_lost is called once, with what was wrong or None."""

    def __init__(
        self,
        on_frame: Callable[[dict[str, Any]], None],
        on_lost: Callable[[str | None], None],
    ) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._fault: str | None = None
        self._transport: asyncio.Transport | None = None
        self._queue: dict[Any, list[Iterator[bytes]]] = {}  # large ones, and what follows, by id
        self._sending: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def send(self, frame: Mapping[str, Any]) -> int:
        """Queue a frame and return its size; one to a lost connection is dropped. A small one goes
        before large ones of other requests. Raises ProtocolError when it is too long."""
        encoded, id = EncodedFrame(frame), frame.get("id")
        queued = self._queue.get(id)
        if queued is None and not encoded.is_large:
            self._write(encoded.whole())
            return encoded.size
        if queued is None or frame["op"] == "cancel":  # the worker forgets what it has a part of
            queued = self._queue[id] = []
        queued.append(encoded.pieces())
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_queued())
        return encoded.size

    async def _send_queued(self) -> None:
        """Write what is queued, piece by piece, as the worker reads it."""
        while self._queue:
            id, queued = next(iter(self._queue.items()))
            piece = next(queued[0], None)
            if piece is not None:
                self._write(piece)
            elif len(queued) > 1:
                del queued[0]
            else:
                del self._queue[id]
            await self._writable.wait()
            await asyncio.sleep(0)
        self._sending = None

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until most of what is queued has been taken, or the connection is lost."""
        if self._sending is not None:
            await asyncio.wait({self._sending})
        await self._writable.wait()

    def pause_writing(self) -> None:
        """Called by the loop."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._writable.set()

    def close(self) -> None:
        """End the connection without waiting for frames still queued."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._queue.clear()
        self._writable.set()
        self._on_lost(self._fault)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._buffer += data
        try:
            self._take_frames()
        except (ProtocolError, KeyError, TypeError, ValueError, AttributeError) as error:
            self._fault = f"{type(error).__name__}: {error}"
            self.close()

    def _take_frames(self) -> None:
        buffer, start = self._buffer, 0
        try:
            while len(buffer) - start >= LENGTH.size:
                (size,) = LENGTH.unpack_from(buffer, start)
                if size > MAX_FRAME_BYTES:
                    raise ProtocolError(f"frame of {size} bytes")
                end = start + LENGTH.size + size
                if len(buffer) < end:
                    break
                with memoryview(buffer) as view:
                    body = bytes(view[start + LENGTH.size : end])
                start = end
                self._on_frame(_decoded(body))
        finally:
            del buffer[:start]
