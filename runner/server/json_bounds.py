"""What a JSON text may hold, counted while its bytes arrive: before anything is built of it.

Parsing a value costs 20 to 150 ns, and what is made of a message or a tool afterwards some
microseconds, all of it on the event loop. Counting costs 1 ns a byte.
"""

from __future__ import annotations

import re
from typing import Final

from runner.errors import InvalidRequest

MAX_VALUES: Final = 1 << 18  # 4 ms; token ids are the usual ones
MAX_KEYS: Final = 1 << 16  # 9 ms
MAX_OBJECTS: Final = 1 << 14  # and arrays; 40 ms where each is a part of a message

_ESCAPES: Final = (b"\\\\", b'\\"')
_WIDE: Final = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")
_TAIL_BYTES: Final = 4  # of an escape that the next bytes may complete


_PIECE_BYTES: Final = 64 * 1024


def check_bounds(text: bytes) -> None:
    """Count what a whole text holds, in short steps. Raises InvalidRequest."""
    bounds = JsonBounds()
    for start in range(0, len(text), _PIECE_BYTES):
        bounds.add(text[start : start + _PIECE_BYTES])


class JsonBounds:
    """Counts the values, keys, objects and arrays of one text. What is no JSON is counted somehow:
    parsing refuses it at its first fault.

    wide_bytes: of the strings with a letter beyond U+FFFF, for each letter of which Python takes
    four bytes."""

    __slots__ = (
        *("_escaped", "_in_string", "_keys", "_objects", "_values"),
        *("_string_bytes", "_string_is_wide", "_tail", "wide_bytes"),
    )

    def __init__(self) -> None:
        self.wide_bytes = 0
        self._string_bytes = 0  # of the string that goes on
        self._string_is_wide = False
        self._tail = b""
        self._in_string = False
        self._escaped = False  # the next byte follows a backslash
        self._values = self._keys = self._objects = 0

    def add(self, data: bytes) -> None:
        """Count the next bytes. Raises InvalidRequest when there is more than may be."""
        before, self._tail = self._tail, (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        wide = _has_wide(before + data if b"\\" in before else data)
        if self._escaped:
            data = data[1:]
        self._escaped = (len(data) - len(data.rstrip(b"\\"))) % 2 == 1
        if self._in_string and b'"' not in data:
            self._add_to_string(len(data), wide)
            return
        if b"\\" in data:
            for escape in _ESCAPES:
                data = data.replace(escape, b"")
        parts = data.split(b'"')
        self._measure(parts, before, wide)
        outside = b"".join(parts[1 if self._in_string else 0 :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self._values += outside.count(b",")
        self._keys += outside.count(b":")
        self._objects += outside.count(b"{") + outside.count(b"[")
        self._check()

    def _measure(self, parts: list[bytes], before: bytes, wide: bool) -> None:
        """Add what is in the strings of bytes that were split at their quotes. wide: some part has
        a wide letter, or completes one that begins in before."""
        goes_on = self._in_string ^ (len(parts) % 2 == 0)
        if self._in_string:
            self._add_to_string(len(parts[0]), wide and _has_wide(before + parts[0]))
        if len(parts) == 1:
            return
        if wide:
            whole = parts[2 if self._in_string else 1 : -1 : 2]
            self.wide_bytes += sum(len(part) for part in whole if _has_wide(part))
        self._string_bytes, self._string_is_wide = 0, False
        if goes_on:
            self._add_to_string(len(parts[-1]), wide and _has_wide(parts[-1]))

    def _add_to_string(self, size_bytes: int, wide: bool) -> None:
        if wide and not self._string_is_wide:
            self.wide_bytes += self._string_bytes
            self._string_is_wide = True
        self._string_bytes += size_bytes
        if self._string_is_wide:
            self.wide_bytes += size_bytes

    def _check(self) -> None:
        for count, limit, what in (
            (self._values, MAX_VALUES, "values"),
            (self._keys, MAX_KEYS, "keys"),
            (self._objects, MAX_OBJECTS, "objects and arrays"),
        ):
            if count > limit:
                raise InvalidRequest(
                    f"the body has more than {limit} {what}; send less in one request"
                )


def _has_wide(data: bytes) -> bool:
    return (not data.isascii() or b"\\u" in data) and _WIDE.search(data) is not None
