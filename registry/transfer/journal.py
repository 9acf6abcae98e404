"""The journal of a partial file: which chunks have arrived, and their CRC-32.

Owns the format: a header line, then records of 12 bytes, each with a checksum of its own, so that
a record that a crash cut short is passed over. Knows nothing of networks. A record is a claim: a
chunk is believed only when its bytes still have the CRC, so nothing needs to be synced before.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from registry.copies import write_all
from registry.descriptors import O_CLOEXEC, O_NOFOLLOW, open_file, pread

_RECORD = struct.Struct("<III")
_MAX_HEADER = 512
_MAX_BYTES = 64 * 1024 * 1024
_VERSION = 1

MIN_CHUNK_BYTES = 64 * 1024
MAX_CHUNK_BYTES = 8 * 1024 * 1024


def chunk_size_for(size_bytes: int) -> int:
    """The chunk of a file: a power of two, about 1/512 of it, so that the one chunk that each of
    8 streams may lose is together less than 2 %."""
    wanted = max(size_bytes // 512, 1)
    return min(max(1 << (wanted - 1).bit_length(), MIN_CHUNK_BYTES), MAX_CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """How a file is cut. key says which content it is."""

    key: str
    size_bytes: int
    chunk_bytes: int

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return -(-self.size_bytes // self.chunk_bytes)

    def bounds(self, index: int) -> tuple[int, int]:
        """Where a chunk begins and ends, in bytes."""
        start = index * self.chunk_bytes
        return start, min(start + self.chunk_bytes, self.size_bytes)

    def length(self, index: int) -> int:
        """The bytes of a chunk."""
        start, stop = self.bounds(index)
        return stop - start


class ChunkJournal:
    """An open journal. crcs: of the chunks that have arrived."""

    __slots__ = ("_descriptor", "crcs")

    def __init__(self, path: Path, plan: PartialPlan) -> None:
        """Open the journal of plan, empty when there is none for it. Raises OSError."""
        self.crcs: dict[int, int] = {}
        flags = os.O_RDWR | os.O_CREAT | O_NOFOLLOW | O_CLOEXEC
        self._descriptor: int | None = open_file(path, flags, 0o600)
        try:
            self._load(plan)
        except BaseException:
            self.close()
            raise

    def add(self, index: int, crc: int) -> None:
        """Note that a chunk is in the file. Raises OSError."""
        if self._descriptor is None:
            raise ValueError("the journal is closed")
        _append(self._descriptor, _record(index, crc))
        self.crcs[index] = crc

    def drop(self, index: int) -> None:
        """A chunk has to be fetched again; the next add replaces its record."""
        self.crcs.pop(index, None)

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _load(self, plan: PartialPlan) -> None:
        assert self._descriptor is not None
        size = min(os.fstat(self._descriptor).st_size, _MAX_BYTES)
        self.crcs, end = _parse(pread(self._descriptor, size, 0), plan)
        os.ftruncate(self._descriptor, end)
        if end == 0:
            _append(self._descriptor, _header(plan))


def read_crcs(path: Path, plan: PartialPlan) -> dict[int, int]:
    """What a journal says, which may be in use: nothing is changed. Raises OSError."""
    with path.open("rb") as file:
        return _parse(file.read(_MAX_BYTES), plan)[0]


def _parse(content: bytes, plan: PartialPlan) -> tuple[dict[int, int], int]:
    """The chunks in a journal of plan, and where its last whole record ends; 0: it is another
    plan's."""
    header = _header(plan)
    if not content.startswith(header):
        return {}, 0
    crcs, end = {}, len(header)
    for at in range(len(header), len(content) - _RECORD.size + 1, _RECORD.size):
        index, crc, check = _RECORD.unpack_from(content, at)
        if check != zlib.crc32(content[at : at + 8]) or index >= plan.count:
            break
        crcs[index] = crc
        end = at + _RECORD.size
    return crcs, end


def _header(plan: PartialPlan) -> bytes:
    facts = {
        "version": _VERSION,
        "key": plan.key[:_MAX_HEADER],
        "size": plan.size_bytes,
        "chunk": plan.chunk_bytes,
    }
    return json.dumps(facts, separators=(",", ":")).encode("ascii") + b"\n"


def _record(index: int, crc: int) -> bytes:
    start = struct.pack("<II", index, crc)
    return start + struct.pack("<I", zlib.crc32(start))


def _append(descriptor: int, content: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_END)
    write_all(descriptor, content)
