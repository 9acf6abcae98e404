"""Frames from the daemon, whole or in pieces."""

from __future__ import annotations

import struct
from asyncio import IncompleteReadError, StreamReader
from typing import Any

from runner.worker.protocol import (
    JSON,
    LENGTH,
    MAX_FRAME_BYTES,
    PIECE,
    PIECE_HEAD,
    TEXT,
    ProtocolError,
    decode_body,
)


class _Arriving:
    """What has come of a large frame."""

    __slots__ = ("data", "text", "values")

    def __init__(self) -> None:
        self.data = bytearray()  # of the value that has not ended, or its text
        self.text = ""
        self.values: list[str | bytes] = []


class FrameReader:
    """The receiving half of the connection."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self._arriving: dict[str, _Arriving] = {}  # by id

    async def read(self) -> dict[str, Any] | None:
        """The next frame, None at the end of the stream. Raises ProtocolError."""
        try:
            while True:
                (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                is_piece, size = size & PIECE, size & ~PIECE
                if size > MAX_FRAME_BYTES:
                    raise ProtocolError(
                        f"frame of {size} bytes, at most {MAX_FRAME_BYTES} are allowed"
                    )
                body = await self._reader.readexactly(size)
                if not is_piece:
                    frame = decode_body(body)
                    if self._arriving:
                        self._arriving.pop(str(frame.get("id")), None)
                    return frame
                whole = self._add(body)
                if whole is not None:
                    return whole
        except (IncompleteReadError, ConnectionError):
            return None
        except (struct.error, ValueError, IndexError) as error:
            raise ProtocolError(f"not a piece of a frame: {error}") from None

    def _add(self, piece: bytes) -> dict[str, Any] | None:
        """The frame that it completes, if it does."""
        id_bytes, kind, ends = PIECE_HEAD.unpack_from(piece)
        begin = PIECE_HEAD.size + id_bytes
        id = piece[PIECE_HEAD.size : begin].decode()
        arriving = self._arriving.setdefault(id, _Arriving())
        if kind == TEXT:  # grows where it is: the name `text` is the only one of it
            text, arriving.text = arriving.text, ""
            text += str(memoryview(piece)[begin:], "utf-8", "surrogatepass")
            if ends:
                arriving.values.append(text)
            else:
                arriving.text = text
            return None
        arriving.data += memoryview(piece)[begin:]
        if not ends:
            return None
        data, arriving.data = arriving.data, bytearray()
        if kind != JSON:
            arriving.values.append(bytes(data))
            return None
        del self._arriving[id]
        frame = decode_body(data)
        _put_back(frame, arriving.values)
        return frame


def _put_back(frame: dict[str, Any], values: list[str | bytes]) -> None:
    """Each of the values where its mark is. The first of them is the mark."""
    mark, rest = str(values[0]), values[1:]
    if not rest:
        return
    stack: list[Any] = [frame]
    while stack:
        box = stack.pop()
        for key, item in box.items() if isinstance(box, dict) else enumerate(box):
            if isinstance(item, str):
                if item.startswith(mark):
                    box[key] = rest[int(item[len(mark) :])]
            elif isinstance(item, dict | list):
                stack.append(item)
