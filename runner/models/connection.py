"""Frames to and from a worker over its socket, without a task or a copy per frame.

Knows nothing of what the frames mean. A worker runs native code on untrusted files, so whatever
it sends is checked; the first thing that is no frame ends the connection.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic_core import from_json, to_json

from runner.worker.json_codec import LargeBytes
from runner.worker.protocol import (
    LENGTH,
    MAX_FRAME_BYTES,
    ProtocolError,
    checked_frame,
    decode_body,
    encode_frame,
)

_MARK: Final = secrets.token_hex(16)  # stands where large bytes go; nobody can guess it
_STEP_BYTES: Final = 3 << 16


def _encoded(frame: Mapping[str, Any]) -> tuple[list[bytes], list[bytes]]:
    """The JSON of a frame, parted where its large bytes go, and these. Takes a fifth of the time of
    encode_frame. Raises ProtocolError."""
    large: list[bytes] = []

    def mark(value: Any) -> str:
        if not isinstance(value, LargeBytes):
            raise TypeError(f"{type(value).__name__} is no JSON")
        large.append(value.data)
        return _MARK

    try:
        body = to_json(frame, inf_nan_mode="constants", fallback=mark)
    except (ValueError, TypeError):  # a lone surrogate, which JSON of clients may have
        large.clear()
        body = encode_frame(frame, default=mark)[LENGTH.size :]
    parts = body.split(_MARK.encode()) if large else [body]
    size = len(body) + sum(_base64_size(data) - len(_MARK) for data in large)
    if size > MAX_FRAME_BYTES:
        raise ProtocolError(f"frame of {size} bytes, at most {MAX_FRAME_BYTES} are allowed")
    parts[0] = LENGTH.pack(size) + parts[0]
    return parts, large


def _pieces(parts: Sequence[bytes], large: Sequence[bytes]) -> Iterator[bytes]:
    """The bytes of a frame, none of its pieces much work."""
    yield parts[0]
    for data, part in zip(large, parts[1:], strict=True):
        for start in range(0, len(data), _STEP_BYTES):
            yield base64.b64encode(data[start : start + _STEP_BYTES])
        yield part


def _base64_size(data: bytes) -> int:
    return -(-len(data) // 3) * 4


def _decoded(body: bytes) -> dict[str, Any]:
    """As decode_body, which takes twice as long."""
    try:
        frame = from_json(body)
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
        self._queue: deque[Iterator[bytes]] = deque()  # after one with large bytes
        self._sending: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def send(self, frame: Mapping[str, Any]) -> int:
        """Queue a frame and return its size but for large bytes; one to a lost connection is
        dropped. Raises ProtocolError when it is too long."""
        parts, large = _encoded(frame)
        if self._queue or large:
            self._queue.append(_pieces(parts, large))
            if self._sending is None:
                self._sending = asyncio.create_task(self._send_queued())
        else:
            self._write(parts[0])
        return sum(map(len, parts))

    async def _send_queued(self) -> None:
        """Write what is queued, piece by piece, as the worker reads it."""
        while self._queue:
            for piece in self._queue[0]:
                await self.drained()
                await asyncio.sleep(0)
                if not self._write(piece):
                    break
            self._queue.popleft()
        self._sending = None

    def _write(self, data: bytes) -> bool:
        """Whether the connection is still there."""
        if self._transport is None or self._transport.is_closing():
            return False
        self._transport.write(data)
        return True

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
                with memoryview(buffer) as view:
                    body = bytes(view[start + LENGTH.size : end])
                start = end
                self._on_frame(_decoded(body))
        finally:
            del buffer[:start]
