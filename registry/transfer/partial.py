"""A file of which parts have arrived: tmp/partial-<key> with its journal beside it.

Owns its writing in any order and its hashing in order, which follows the front of what has come
and so reads what the page cache still holds. Survives the end of the process at any point.
Methods block on the disk and raise StoreFull, StoreFault or StoreReadOnly; one thread at a time
may write one chunk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from registry.atomic import fault_of
from registry.copies import FILE_MODE
from registry.descriptors import (
    O_CLOEXEC,
    O_NOFOLLOW,
    O_NONBLOCK,
    lock,
    open_file,
    pread,
    pwrite,
    replace,
    sync_directory,
)
from registry.digest import Digest
from registry.transfer.journal import ChunkJournal, PartialPlan, read_crcs

PREFIX = "partial-"  # also of the journals
JOURNAL = ".journal"
_READ_BYTES = 1024 * 1024


class PartialFile:
    """An open partial file."""

    def __init__(self, directory: Path, plan: PartialPlan) -> None:
        """Open what is there of plan, or begin. Raises StoreFull, StoreFault."""
        self.plan = plan
        self.path, self._journal_path = _paths(directory, plan)
        self._lock = threading.Lock()
        self._hashes: list[Any] = [hashlib.sha256()]
        self._trusted: set[int] = set()
        self._descriptor = -1
        with self._faults():
            try:
                self._journal = self._open()
            except OSError:
                self._close_file()
                raise

    def _open(self) -> ChunkJournal:
        """Open both files; a file of another length has nothing to do with the plan."""
        flags = os.O_RDWR | os.O_CREAT | O_NOFOLLOW | O_CLOEXEC
        self._descriptor = open_file(self.path, flags, FILE_MODE)
        with contextlib.suppress(OSError):  # some network file systems have no locks
            lock(self._descriptor, shared=True)  # keeps it from registry.gc
        if os.fstat(self._descriptor).st_size != self.plan.size_bytes:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._journal_path)
            os.ftruncate(self._descriptor, self.plan.size_bytes)
        return ChunkJournal(self._journal_path, self.plan)

    @property
    def arrived(self) -> set[int]:
        """The chunks that are in the file."""
        with self._lock:
            return set(self._journal.crcs)

    @property
    def arrived_bytes(self) -> int:
        """How many bytes are in the file."""
        return sum(self.plan.length(index) for index in self.arrived)

    @property
    def hashed(self) -> int:
        """How many chunks, from the first, have been hashed."""
        return len(self._hashes) - 1

    def crc(self, index: int) -> int | None:
        """What the journal says of a chunk; None when it has not arrived."""
        return self._journal.crcs.get(index)

    def write(self, offset: int, content: bytes | bytearray | memoryview) -> None:
        """Put content at offset."""
        view = memoryview(content)
        with self._faults():
            while view:
                count = pwrite(self._descriptor, view, offset)
                view, offset = view[count:], offset + count

    def add(self, index: int, crc: int) -> None:
        """Note that a chunk is complete."""
        with self._lock, self._faults():
            self._journal.add(index, crc)
            self._trusted.add(index)

    def drop(self, index: int) -> None:
        """Forget a chunk, and the hash from there on."""
        with self._lock:
            self._journal.drop(index)
            self._trusted.discard(index)
            del self._hashes[index + 1 :]

    def hash_next(self, count: int = 1) -> int | None:
        """Hash the next count chunks, which have arrived. Not None: this one was kept from an
        earlier run and is damaged, and now counts as missing."""
        for index in range(self.hashed, self.hashed + count):
            if not self._hash(index):
                return index
        return None

    def _hash(self, index: int) -> bool:
        hasher = self._hashes[-1].copy()
        checked, crc = index in self._trusted, 0
        for part in self._parts(index):
            hasher.update(part)
            if not checked:
                crc = zlib.crc32(part, crc)
        if not checked and crc != self.crc(index):
            self.drop(index)
            return False
        self._hashes.append(hasher)
        return True

    def is_intact(self, index: int) -> bool:
        """True when the bytes on the disk are those that arrived."""
        crc = 0
        for part in self._parts(index):
            crc = zlib.crc32(part, crc)
        return crc == self.crc(index)

    def digest(self) -> Digest:
        """The digest of all, once everything is hashed."""
        if self.hashed != self.plan.count:
            raise ValueError("the file is not complete")
        return Digest(self._hashes[-1].hexdigest())

    def sync(self) -> None:
        """Put the content on the disk."""
        with self._faults():
            os.fsync(self._descriptor)

    def publish(self, target: Path) -> None:
        """Give the content, which sync has put on the disk, its name; the journal goes."""
        with self._faults():
            replace(self.path, target)
            with contextlib.suppress(OSError):
                os.unlink(self._journal_path)
            sync_directory(target.parent)
        self.close()

    def close(self) -> None:
        """Close the files; what has arrived stays. Calling it twice is allowed."""
        self._journal.close()
        self._close_file()

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def discard(self) -> None:
        """Close and remove it. Never raises."""
        with contextlib.suppress(OSError):
            self.close()
        for path in (self.path, self._journal_path):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _parts(self, index: int) -> Iterator[bytes]:
        at, stop = self.plan.bounds(index)
        while at < stop:
            with self._faults():
                part = pread(self._descriptor, min(_READ_BYTES, stop - at), at)
            if not part:
                part = bytes(min(_READ_BYTES, stop - at))
            yield part
            at += len(part)

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """As registry.atomic.faults, with the bytes that are missing."""
        try:
            yield
        except OSError as error:
            missing = self.plan.size_bytes
            with contextlib.suppress(AttributeError):
                missing -= sum(self.plan.length(index) for index in self._journal.crcs)
            raise fault_of(error, "write the blob", self.path.parent, missing) from error


def arrived_bytes(directory: Path, plan: PartialPlan) -> int:
    """The bytes that an earlier transfer of plan has left; 0 when there is none."""
    path, journal_path = _paths(directory, plan)
    try:
        whole = path.lstat().st_size == plan.size_bytes
        crcs = read_crcs(journal_path, plan) if whole else {}
    except OSError:
        return 0
    return sum(plan.length(index) for index in crcs)


def is_open(path: Path) -> bool:
    """True while a transfer has the file open: it holds a shared lock on it. Raises OSError."""
    descriptor = open_file(path, os.O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)
    try:
        lock(descriptor)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _paths(directory: Path, plan: PartialPlan) -> tuple[Path, Path]:
    name = f"{PREFIX}{Digest.of(plan.key.encode()).hex[:32]}"
    return directory / name, directory / f"{name}{JOURNAL}"
