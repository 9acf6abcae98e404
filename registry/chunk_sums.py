"""The CRC-32 of the chunks of a blob: made while it is written, and compared with it later.

Owns the arithmetic. A CRC-32 tells every damage up to 32 bits in a row; the digest of the whole
has the last word.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from registry.atomic import open_regular
from registry.records import BlobRecord

_READ_BYTES = 1024 * 1024


class ChunkSums:
    """The checksums of a blob whose bytes come in order."""

    __slots__ = ("_chunk_bytes", "_crc", "_filled", "_sums", "size_bytes")

    def __init__(self, chunk_bytes: int) -> None:
        self.size_bytes = 0
        self._chunk_bytes = chunk_bytes
        self._sums: list[int] = []
        self._crc = 0
        self._filled = 0

    def update(self, content: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        view = memoryview(content)
        self.size_bytes += len(view)
        while view:
            count = min(self._chunk_bytes - self._filled, len(view))
            self._crc = zlib.crc32(view[:count], self._crc)
            self._filled += count
            view = view[count:]
            if self._filled == self._chunk_bytes:
                self._sums.append(self._crc)
                self._crc, self._filled = 0, 0

    def record(self) -> BlobRecord:
        """The record of all that came."""
        last = [self._crc] if self._filled else []
        return BlobRecord(self.size_bytes, self._chunk_bytes, (*self._sums, *last))


def record_of(size_bytes: int, chunk_bytes: int, crcs: Mapping[int, int]) -> BlobRecord | None:
    """The record of a blob by the checksums of its chunks; None when one of them is missing."""
    count = -(-size_bytes // chunk_bytes)
    if len(crcs) != count:
        return None
    return BlobRecord(size_bytes, chunk_bytes, tuple(crcs[index] for index in range(count)))


def bad_chunks(path: Path, record: BlobRecord) -> list[int]:
    """The chunks of a blob that are not what they were when record was made; what cannot be
    read is bad. Raises OSError when the file cannot be opened, BlobDamaged."""
    descriptor = open_regular(path)
    try:
        return [
            index
            for index, crc in enumerate(record.crcs)
            if _crc(descriptor, index * record.chunk_bytes, chunk_length(record, index)) != crc
        ]
    finally:
        os.close(descriptor)


def chunk_length(record: BlobRecord, index: int) -> int:
    """The bytes of a chunk."""
    return min(record.chunk_bytes, record.size_bytes - index * record.chunk_bytes)


def _crc(descriptor: int, offset: int, length: int) -> int | None:
    """The CRC-32 of a range; None when it cannot be read in full."""
    crc, left = 0, length
    while left:
        try:
            part = os.pread(descriptor, min(_READ_BYTES, left), offset + length - left)
        except OSError:
            return None
        if not part:
            return None
        crc = zlib.crc32(part, crc)
        left -= len(part)
    return crc
