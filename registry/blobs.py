"""Blobs: content under its own SHA-256 name. A final name implies verified content.

Owns paths, sizes, reading and writing of blobs/. Knows nothing of manifests.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from registry.atomic import (
    TempFile,
    fault_of,
    faults,
    open_regular,
    require_space,
)
from registry.descriptors import replace, sync_directory
from registry.digest import Digest
from registry.errors import (
    BlobDamaged,
    BlobMissing,
    BlobTooLarge,
    DigestMismatch,
)
from registry.incoming_files import Advance, make_private, read_content
from registry.records import Records
from registry.transfer.partial import PartialFile

_TEMPORARY = "blob-"
TAKEN = "taken-"


class BlobWriter:
    """Content on its way into the store. It is hashed while it is written and visible only
    after commit."""

    __slots__ = ("_blobs", "_expected", "_file", "_hash", "_size_hint", "size_bytes")

    def __init__(
        self, blobs: Blobs, file: TempFile, expected: Digest | None, size_hint: int | None
    ) -> None:
        self._blobs = blobs
        self._file = file
        self._expected = expected
        self._size_hint = size_hint
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def write(self, content: bytes | memoryview) -> None:
        """Append content. Raises StoreFull, StoreFault."""
        left = max(len(content), (self._size_hint or 0) - self.size_bytes)
        with faults("write the blob", self._blobs.directory, left):
            self._file.write(content)
        self._hash.update(content)
        self.size_bytes += len(content)

    def commit(self) -> tuple[Digest, int]:
        """Put the blob on the disk under its digest; gives the digest and the size in bytes.

        Raises DigestMismatch, StoreFull, StoreFault; then nothing is left behind.
        """
        actual = Digest(self._hash.hexdigest())
        if self._expected is not None and actual != self._expected:
            raise DigestMismatch(str(self._expected), str(actual))
        with faults("write the blob", self._blobs.directory, self.size_bytes):
            self._file.sync()
            with self._blobs.change:
                self._file.publish(self._blobs.path(actual))
                self._blobs.fresh.add(actual)
        return actual, self.size_bytes


class Blobs:
    """The folder of blobs of one store. change: held while blobs come and go. fresh: committed
    and in no manifest yet, so that the removal of another model does not take them. taken: those
    of them that were files before, whose age says nothing; after a crash they are removed."""

    __slots__ = ("_temporary", "change", "directory", "fresh", "records", "taken")

    def __init__(
        self, directory: Path, temporary: Path, change: threading.RLock, records: Records
    ) -> None:
        self.directory = directory
        self.change = change
        self.records = records
        self.fresh: set[Digest] = set()
        self.taken: set[Digest] = set()
        self._temporary = temporary

    def path(self, digest: Digest) -> Path:
        """Where the blob is, or would be."""
        return self.directory / digest.file_name

    def size(self, digest: Digest) -> int | None:
        """The size of a blob in bytes; None when there is no regular file of that name."""
        try:
            status = os.lstat(self.path(digest))
        except OSError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def read(self, digest: Digest, limit_bytes: int) -> bytes:
        """A small blob, verified. Raises BlobMissing, BlobTooLarge, DigestMismatch,
        BlobDamaged, StoreFault."""
        with open(self._open(digest), "rb") as file, faults("read the blob", self.directory):
            size_bytes = os.fstat(file.fileno()).st_size  # memory for limit_bytes would be torn
            content = file.read(min(size_bytes, limit_bytes) + 1)
        if len(content) > limit_bytes:
            raise BlobTooLarge(
                f"blob {digest} has more than the {limit_bytes} bytes allowed for its kind"
            )
        actual = Digest.of(content)
        if actual != digest:
            raise DigestMismatch(str(digest), str(actual))
        return content

    @contextlib.contextmanager
    def writer(self, expected: Digest | None, size_bytes: int | None) -> Iterator[BlobWriter]:
        """A writer for one blob; what is not committed at the end of the block is removed.

        Raises StoreFull when size_bytes are known to be more than is free, StoreFault.
        """
        require_space("write the blob", self._temporary, size_bytes or 0)
        with faults("write the blob", self.directory, size_bytes or 0):
            file = TempFile(self._temporary, _TEMPORARY)
        try:
            yield BlobWriter(self, file, expected, size_bytes)
        finally:
            file.discard()

    def adopt(self, partial: PartialFile, digest: Digest) -> None:
        """Publish a complete partial file as this blob. Raises StoreFull, StoreFault."""
        partial.sync()
        with self.change:
            partial.publish(self.path(digest))
            self.fresh.add(digest)

    def take(self, path: Path, advance: Advance) -> tuple[Digest, int]:
        """Make a file of this file system a blob, under whatever digest it has; gives that and
        the size in bytes. It is read once, and the path is gone afterwards. A blob that exists
        is not replaced by a file that has another name.

        Raises BlobMissing when there is no such file, BlobDamaged, StoreFull, StoreFault.
        """
        try:
            with faults("read the file", self.directory):
                make_private(path)
                content = read_content(path, advance)
                digest = content.digest
                with self.change:
                    self._marker(digest).touch(0o600)
                    if not (content.is_linked and self.size(digest) == content.size_bytes):
                        replace(path, self.path(digest))
                        sync_directory(self.directory)
                    self.fresh.add(digest)
                    self.taken.add(digest)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
        return digest, content.size_bytes

    def settle(self, digests: Iterable[Digest]) -> None:
        """Note that blobs are now in a manifest, or no longer needed by their creator."""
        for digest in digests:
            self.fresh.discard(digest)
            if digest in self.taken:
                self.taken.discard(digest)
                with contextlib.suppress(OSError):
                    os.unlink(self._marker(digest))

    def unsettled(self) -> Iterator[Digest]:
        """The blobs that were taken by a process that ended before it settled them, each once."""
        for path in list(self._temporary.glob(f"{TAKEN}*")):
            with contextlib.suppress(OSError):
                os.unlink(path)
            if _is_digest(path.name.removeprefix(TAKEN)):
                yield Digest(path.name.removeprefix(TAKEN))

    def _marker(self, digest: Digest) -> Path:
        return self._temporary / f"{TAKEN}{digest.hex}"

    def _open(self, digest: Digest) -> int:
        try:
            return open_regular(self.path(digest))
        except FileNotFoundError:
            raise BlobMissing(str(digest)) from None
        except PermissionError:
            raise BlobDamaged(f"blob {digest} may not be read by this user") from None
        except OSError as error:
            raise fault_of(error, "read the blob", self.directory) from error

    def remove(self, digest: Digest) -> int:
        """Remove a blob; gives the bytes freed, 0 when there was none. Raises StoreFault."""
        size = self.size(digest)
        if size is None:
            return 0
        with faults("remove the blob", self.directory), contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(digest))
            self.settle([digest])
        self.records.drop_blob(digest)
        return size

    def all(self) -> dict[Digest, float]:
        """Every blob by name and when it was written, by its file. Raises StoreFault."""
        found = {}
        with faults("list the blobs", self.directory), os.scandir(self.directory) as entries:
            for entry in entries:
                kind, _, digits = entry.name.partition("-")
                if kind != "sha256" or not _is_digest(digits):
                    continue
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    if entry.is_file(follow_symlinks=False):
                        found[Digest(digits)] = entry.stat(follow_symlinks=False).st_mtime
        return found


def _is_digest(digits: str) -> bool:
    return len(digits) == 64 and set(digits) <= set("0123456789abcdef")
