"""Files that appear under their final name only when they are whole and on the disk.

Owns the temporary file, the order write, fsync, rename, fsync of the folder, and the wording of
failed system calls. Knows nothing of blobs and manifests.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from registry.errors import BlobDamaged, RegistryError, StoreFault, StoreFull, StoreReadOnly

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextlib.contextmanager
def faults(operation: str, directory: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Turn the OSErrors of the block into StoreFull, StoreReadOnly or StoreFault.

    directory: where the write goes, to tell how much is free there.
    """
    try:
        yield
    except OSError as error:
        raise fault_of(error, operation, directory, needed_bytes) from error


def fault_of(
    error: OSError, operation: str, directory: Path, needed_bytes: int = 0
) -> RegistryError:
    """What an OSError means for the store."""
    if error.errno in _FULL:
        return StoreFull(operation, error.errno or 0, needed_bytes, free_bytes(directory))
    if error.errno in _DENIED:
        return StoreReadOnly(operation)
    return StoreFault(operation, error.errno)


def free_bytes(directory: Path) -> int:
    """The space that this user may still fill there; 0 when it cannot be told."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize


def make_directory(path: Path) -> None:
    """Make path and its missing parents, mode 0700. Raises OSError."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, DIRECTORY_MODE)
        sync_directory(directory.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a folder survive a power loss. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> int:
    """A descriptor of a regular file that is no link. Raises OSError, BlobDamaged."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BlobDamaged(f"{path.name} is a link, not a file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BlobDamaged(f"{path.name} is not a regular file")
    return descriptor


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """At most limit_bytes + 1 bytes of a regular file that is no link.

    Raises OSError, BlobDamaged.
    """
    with open(open_regular(path), "rb") as file:
        return file.read(limit_bytes + 1)


class TempFile:
    """A file that is being written. publish gives it its name; discard leaves nothing."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, directory: Path, prefix: str) -> None:
        """Open a fresh file in directory, mode 0600. Raises OSError."""
        self.path = directory / f"{prefix}{uuid.uuid4().hex}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor: int | None = os.open(self.path, flags, FILE_MODE)

    def write(self, content: bytes | memoryview) -> None:
        """Append all of content. Raises OSError."""
        if self._descriptor is None:
            raise ValueError("the file is closed")
        view = memoryview(content)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def sync(self) -> None:
        """Put the content on the disk. Raises OSError."""
        if self._descriptor is None:
            raise ValueError("the file is closed")
        os.fsync(self._descriptor)

    def publish(self, target: Path) -> None:
        """Put the content on the disk, then give it the name target. Raises OSError."""
        self.sync()
        self._close()
        os.replace(self.path, target)
        sync_directory(target.parent)

    def discard(self) -> None:
        """Remove it if it has not been published. Never raises."""
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def write_file(temporary: Path, target: Path, content: bytes) -> None:
    """Write content to target, whole or not at all. temporary: a folder of the same file
    system. Raises OSError."""
    file = TempFile(temporary, "file-")
    try:
        file.write(content)
        file.publish(target)
    except BaseException:
        file.discard()
        raise
