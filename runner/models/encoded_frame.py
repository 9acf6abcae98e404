"""A frame to a worker as the bytes that are sent: see runner.worker.protocol.

What is large goes by itself and not as JSON: so no side parses it, or holds it more often than it
must. Knows no sockets.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_core import to_json

from runner.worker.json_codec import LARGE, Large
from runner.worker.protocol import (
    BYTES,
    JSON,
    LENGTH,
    MAX_FRAME_BYTES,
    PIECE,
    PIECE_HEAD,
    TEXT,
    ProtocolError,
    encode_frame,
)

_MARK: Final = secrets.token_hex(16)
_PIECE_SIZE: Final = 3 << 16  # characters or bytes


class EncodedFrame:
    """One frame. Raises ProtocolError when it is too long, or no JSON. size: of all of it."""

    __slots__ = ("_body", "_id", "_values", "size")

    def __init__(self, frame: Mapping[str, Any]) -> None:
        self._id = str(frame.get("id", "")).encode()
        self._values: list[str | bytes] = [_MARK]
        try:  # a fifth of the time of encode_frame
            self._body = to_json(frame, inf_nan_mode="constants", fallback=self._put_beside)
        except (ValueError, TypeError):  # a lone surrogate, which JSON of clients may have
            self._values = [_MARK]
            self._body = encode_frame(frame, default=self._put_beside)[LENGTH.size :]
        self.size = len(self._body) + sum(map(len, self._values[1:]))
        if self.size > MAX_FRAME_BYTES:
            raise ProtocolError(
                f"frame of {self.size} bytes, at most {MAX_FRAME_BYTES} are allowed"
            )

    @property
    def is_large(self) -> bool:
        """Whether it goes in pieces."""
        return self.size > LARGE

    def whole(self) -> bytes:
        """The bytes of a small one."""
        return LENGTH.pack(self.size) + self._body

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, none of them much work."""
        if not self.is_large:
            yield self.whole()
            return
        for value in self._values:
            yield from self._cut(value, TEXT if isinstance(value, str) else BYTES)
        yield from self._cut(self._body, JSON)

    def _cut(self, value: str | bytes, kind: int) -> Iterator[bytes]:
        for start in range(0, len(value), _PIECE_SIZE):
            part = value[start : start + _PIECE_SIZE]
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            ends = start + _PIECE_SIZE >= len(value)
            head = PIECE_HEAD.pack(len(self._id), kind, ends) + self._id
            yield LENGTH.pack(PIECE | len(head) + len(data)) + head + data

    def _put_beside(self, value: Any) -> str:
        if not isinstance(value, Large):
            raise TypeError(f"{type(value).__name__} is no JSON")
        self._values.append(value.value)
        return f"{_MARK}{len(self._values) - 2}"
