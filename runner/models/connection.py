"""Frames to and from a worker over its socket, without a task or a copy per frame.

Knows nothing of what the frames mean. A worker runs native code on untrusted files, so whatever
it sends is checked; the first thing that is no frame ends the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import from_json, to_json

from runner.worker.protocol import LENGTH, MAX_FRAME_BYTES, ProtocolError, decode_body, encode_frame


def _encoded(frame: Mapping[str, Any]) -> bytes:
    """As encode_frame, which takes five times as long."""
    try:
        body = to_json(frame, inf_nan_mode="constants")
    except ValueError:  # a lone surrogate, which JSON of clients may have
        return encode_frame(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"frame of {len(body)} bytes, at most {MAX_FRAME_BYTES} are allowed")
    return LENGTH.pack(len(body)) + body


def _decoded(body: bytes) -> dict[str, Any]:
    """As decode_body, which takes twice as long."""
    try:
        frame = from_json(body)
    except ValueError:  # a lone surrogate, or what is no frame
        return decode_body(body)
    if not isinstance(frame, dict) or not isinstance(frame.get("op"), str):
        raise ProtocolError('a frame is an object with "op"')
    return frame


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
        self._writable = asyncio.Event()
        self._writable.set()

    def send(self, frame: Mapping[str, Any]) -> int:
        """Queue a frame and return its bytes; one to a lost connection is dropped. Raises
        ProtocolError when it is too long."""
        data = _encoded(frame)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        return len(data)

    async def drained(self) -> None:
        """Wait until most of what is queued has been taken, or the connection is lost."""
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
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
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
                body = bytes(buffer[start + LENGTH.size : end])
                start = end
                self._on_frame(_decoded(body))
        finally:
            del buffer[:start]
