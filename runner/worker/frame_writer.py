"""Frames on their way to the daemon.

Any thread may send. A frame goes to the socket at once when nothing is queued, so a step's
deltas need no switch to another thread; what the socket does not take is kept in order and
written by the event loop. Knows nothing of what frames mean.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from typing import Any

from runner.worker.protocol import MAX_ANSWER_BYTES, encode_frame

PAUSE_BYTES = 8 * 1024 * 1024


class FrameWriter:
    """The sending half of the connection."""

    def __init__(self, connection: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """connection: non-blocking; its reading half belongs to somebody else."""
        self._socket = connection.dup()
        self._loop = loop
        self._buffer = bytearray()
        self._changed = threading.Condition()
        self._lost = False

    @property
    def queued_bytes(self) -> int:
        """Bytes that the daemon has not taken yet."""
        return len(self._buffer)

    def send(self, frame: Mapping[str, Any]) -> None:
        """Send a frame, in order. Raises ProtocolError when it is too long."""
        data = encode_frame(frame, MAX_ANSWER_BYTES)
        with self._changed:
            if self._lost:
                return
            if self._buffer:
                self._buffer += data
                return
            rest = data[self._write(data) :]
            if rest and not self._lost:
                self._buffer += rest
                self._loop.call_soon_threadsafe(self._loop.add_writer, self._socket, self._flush)

    def wait_for_room(self) -> None:
        """Block while more than PAUSE_BYTES are queued. Not for the event loop's thread."""
        if len(self._buffer) <= PAUSE_BYTES:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._lost or len(self._buffer) <= PAUSE_BYTES)

    def close(self) -> None:
        """Give up what is queued. On the event loop's thread."""
        with self._changed:
            self._lost = True
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._changed.notify_all()

    def _flush(self) -> None:
        with self._changed:
            del self._buffer[: self._write(self._buffer)]
            if not self._buffer or self._lost:
                self._loop.remove_writer(self._socket)
            self._changed.notify_all()

    def _write(self, data: bytes | bytearray) -> int:
        """Bytes taken. A lost connection takes nothing more; its reader notices the end."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._lost = True
            return 0
