"""A bounded reader of protocol buffer messages, without a schema.

Knows the wire format, not the fields.
Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

Wire = int | bytes  # a varint; or the bytes of a fixed32, a fixed64 or a delimited field
_VARINT: Final = 0
_FIXED64: Final = 1
_DELIMITED: Final = 2
_FIXED32: Final = 5
_MAX_VARINT_BYTES: Final = 10


def fields(message: bytes) -> Iterator[tuple[int, Wire]]:
    """Number and value of each field, in the order of the bytes. Raises ValueError, naming the
    byte, when the bytes are no message."""
    position = 0
    while position < len(message):
        start = position
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"invalid field number {number} at byte {start}")
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        size, position = _size(message, position, kind)
        if size > len(message) - position:
            raise ValueError(f"field {number} at byte {start} is cut off")
        yield number, message[position : position + size]
        position += size


def _size(message: bytes, position: int, kind: int) -> tuple[int, int]:
    if kind == _DELIMITED:
        return _varint(message, position)
    if kind == _FIXED32:
        return 4, position
    if kind == _FIXED64:
        return 8, position
    raise ValueError(f"invalid wire type {kind} at byte {position}")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(message[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, position + place + 1
    raise ValueError(f"a number without an end at byte {position}")
