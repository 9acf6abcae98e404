"""The bytes of a header, read as far as they are needed and never past the end of the file.

A map of the file would be simpler, but a file that shrinks under a map kills the process.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from registry.atomic import open_regular
from registry.descriptors import pread
from registry.errors import BlobDamaged, InvalidGguf

MAX_HEADER_BYTES = 128 * 1024 * 1024
MAX_STRINGS = 2 * 1024 * 1024  # in all arrays; the largest vocabularies have under 900,000
_FIRST_BYTES = 1024 * 1024


@contextlib.contextmanager
def opened(path: Path) -> Iterator[HeaderSource]:
    """The start of a file. Raises InvalidGguf for what is no regular file, OSError."""
    try:
        descriptor = open_regular(path)
    except BlobDamaged as error:
        raise InvalidGguf(error.message) from None
    with open(descriptor, "rb", buffering=0):
        yield HeaderSource(descriptor, os.fstat(descriptor).st_size)


class HeaderSource:
    """A cursor over the start of a file. position: the offset of the next byte in the file."""

    __slots__ = ("_descriptor", "_strings_left", "buffer", "position", "size_bytes")

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._descriptor = descriptor
        self.size_bytes = size_bytes
        self.buffer = b""
        self.position = 0
        self._strings_left = MAX_STRINGS

    @property
    def left_bytes(self) -> int:
        """How many bytes the file still has."""
        return self.size_bytes - self.position

    def need(self, count: int, what: str) -> None:
        """Have count more bytes in buffer. Raises InvalidGguf, naming what, when the file ends
        before or the header is longer than MAX_HEADER_BYTES; nothing is allocated then."""
        end = self.position + count
        if end <= len(self.buffer):
            return
        if end > self.size_bytes:
            raise InvalidGguf(f"truncated: {what} needs {end} bytes, has {self.size_bytes}")
        if end > MAX_HEADER_BYTES:
            raise InvalidGguf(f"{what} ends beyond {MAX_HEADER_BYTES} bytes of header")
        self._fill(max(end, min(_FIRST_BYTES + 4 * len(self.buffer), MAX_HEADER_BYTES)))
        if end > len(self.buffer):
            raise InvalidGguf(f"truncated: the file became shorter while reading {what}")

    def take(self, count: int, what: str) -> bytes:
        """The next count bytes. Raises InvalidGguf."""
        self.need(count, what)
        start = self.position
        self.position = start + count
        return self.buffer[start : self.position]

    def unpack(self, form: struct.Struct, what: str) -> tuple[Any, ...]:
        """The next values of form. Raises InvalidGguf."""
        self.need(form.size, what)
        values = form.unpack_from(self.buffer, self.position)
        self.position += form.size
        return values

    def count_strings(self, count: int, what: str) -> None:
        """Ask before count strings are read. Raises InvalidGguf."""
        if count > self._strings_left:
            raise InvalidGguf(
                f"{what}: {count} texts, at most {MAX_STRINGS} are allowed in all arrays"
            )
        self._strings_left -= count

    def _fill(self, end: int) -> None:
        parts, have = [self.buffer], len(self.buffer)
        while have < min(end, self.size_bytes):
            part = pread(self._descriptor, min(end, self.size_bytes) - have, have)
            if not part:
                break
            parts.append(part)
            have += len(part)
        self.buffer = b"".join(parts)
