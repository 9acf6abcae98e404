"""Metadata values: reading one from the header, each bound checked before it is allocated."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.errors import InvalidGguf, shown
from registry.formats.gguf.header_source import HeaderSource, opened
from registry.formats.gguf.types import ARRAY, BOOL, SCALARS, STRING, VALUE_NAMES

MAX_KEY_BYTES = 64 * 1024 - 1
MAX_STRING_BYTES = 1024 * 1024
MAX_NUMBERS = 16 * 1024 * 1024
_EAGER_ITEMS = 64

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_ARRAY_HEAD = struct.Struct("<IQ")
_FORMS = {kind: struct.Struct("<" + code) for kind, (code, _) in SCALARS.items()}


@dataclass(frozen=True, slots=True)
class RawArray:
    """An array as read: strings as bytes, numbers in an array.array. offset: of its first
    element in the file."""

    kind: int
    offset: int
    items: Sequence[Any]


@dataclass(frozen=True, slots=True)
class RawValue:
    """A metadata value as read, with its type."""

    kind: int
    value: Any


@dataclass(frozen=True, slots=True)
class LazyArray:
    """A long array of the metadata that stays in the file until load is called."""

    element: str
    length: int
    path: Path
    offset: int

    def __len__(self) -> int:
        return self.length

    def load(self) -> list[Any]:
        """The elements. Raises InvalidGguf when the file has changed, OSError."""
        kind = VALUE_NAMES.index(self.element)
        with opened(self.path) as source:
            source.position = self.offset
            return list(_plain_items(kind, _read_items(source, kind, self.length, "array")))


def read_string(source: HeaderSource, limit_bytes: int, what: str) -> bytes:
    """A string with its length before it. Raises InvalidGguf."""
    (length,) = source.unpack(_U64, what)
    if length > source.left_bytes:
        raise InvalidGguf(
            f"truncated: {what} needs {source.position + length} bytes, has {source.size_bytes}"
        )
    if length > limit_bytes:
        raise InvalidGguf(f"{what}: a string of {length} bytes, at most {limit_bytes} are allowed")
    return source.take(length, what)


def read_value(source: HeaderSource, key: str) -> RawValue:
    """The type and the value of key. Raises InvalidGguf."""
    (kind,) = source.unpack(_U32, key)
    if kind == STRING:
        return RawValue(kind, read_string(source, MAX_STRING_BYTES, key))
    if kind == ARRAY:
        return RawValue(kind, _read_array(source, key))
    if kind not in _FORMS:
        raise InvalidGguf(f"{key}: value type {kind}, known are 0 to {len(VALUE_NAMES) - 1}")
    (value,) = source.unpack(_FORMS[kind], key)
    return RawValue(kind, _bool(value, key) if kind == BOOL else value)


def plain(raw: RawValue, path: Path) -> Any:
    """The value as Python has it: str, int, float, bool, tuple, or LazyArray for a long one."""
    if raw.kind == STRING:
        return raw.value.decode("utf-8", "replace")
    if raw.kind != ARRAY:
        return raw.value
    items: RawArray = raw.value
    if len(items.items) > _EAGER_ITEMS:
        return LazyArray(VALUE_NAMES[items.kind], len(items.items), path, items.offset)
    return tuple(_plain_items(items.kind, items.items))


def _plain_items(kind: int, items: Sequence[Any]) -> Iterator[Any]:
    if kind == STRING:
        return (item.decode("utf-8", "replace") for item in items)
    return map(bool, items) if kind == BOOL else iter(items)


def _read_array(source: HeaderSource, key: str) -> RawArray:
    kind, count = source.unpack(_ARRAY_HEAD, key)
    if kind == ARRAY:
        raise InvalidGguf(f"{key}: nested arrays are not supported")
    if kind != STRING and kind not in SCALARS:
        raise InvalidGguf(f"{key}: array of type {kind}, which is unknown")
    offset = source.position
    return RawArray(kind, offset, _read_items(source, kind, count, key))


def _read_items(source: HeaderSource, kind: int, count: int, key: str) -> Sequence[Any]:
    smallest = 8 if kind == STRING else SCALARS[kind][1]
    if count * smallest > source.left_bytes:
        raise InvalidGguf(
            f"truncated: {key}: {count} elements need {source.position + count * smallest} bytes,"
            f" has {source.size_bytes}"
        )
    if kind == STRING:
        source.count_strings(count, key)
        return _read_strings(source, count, key)
    if count > MAX_NUMBERS:
        raise InvalidGguf(f"{key}: {count} elements, at most {MAX_NUMBERS} are allowed")
    numbers = array(SCALARS[kind][0])
    numbers.frombytes(source.take(count * smallest, key))
    if sys.byteorder == "big":
        numbers.byteswap()
    if kind == BOOL and count and max(numbers) > 1:
        raise InvalidGguf(f"{key}: {max(numbers)} is not a bool, expected 0 or 1")
    return numbers


def _read_strings(source: HeaderSource, count: int, key: str) -> list[bytes]:
    """count strings. The loop is the cost of a header: a vocabulary of 150,000 tokens and as
    many merges take about 0.1 s this way and three times as long through read_string."""
    source.need(8 * count, key)
    found: list[bytes] = []
    buffer, position, length_of = source.buffer, source.position, _U64.unpack_from
    for _ in range(count):
        start = position + 8
        if start > len(buffer):
            source.position = position
            source.need(8, key)
            buffer = source.buffer
        end = start + length_of(buffer, position)[0]
        if end > len(buffer) or end - start > MAX_STRING_BYTES:
            source.position = position
            found.append(read_string(source, MAX_STRING_BYTES, key))
            buffer, position = source.buffer, source.position
            continue
        found.append(buffer[start:end])
        position = end
    source.position = position
    return found


def _bool(value: int, key: str) -> bool:
    if value > 1:
        raise InvalidGguf(f"{key}: {shown(str(value))} is not a bool, expected 0 or 1")
    return bool(value)
