"""Files that appear under their final name only when they are whole and on the disk.

Owns the temporary file, the order write, fsync, rename, fsync of the folder, and the wording of
failed system calls. Knows nothing of blobs and manifests.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from registry.copies import create_file, write_all
from registry.descriptors import (
    O_CLOEXEC,
    O_NOFOLLOW,
    O_NONBLOCK,
    open_file,
    replace,
    sync_directory,
)
from registry.errors import BlobDamaged, RegistryError, StoreFault, StoreFull, StoreReadOnly

DIRECTORY_MODE = 0o700
OPEN_FILES = Path("/proc/self/fd")  # of Linux
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MAX_SET_ASIDE = 100  # the last one is overwritten from then on
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
    """The space that this user may still use there; 0 when it is unknown."""
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return 0


def require_space(operation: str, directory: Path, needed_bytes: int) -> None:
    """Raises StoreFull when that many bytes no longer fit there."""
    free = free_bytes(directory)
    if needed_bytes > free:
        raise StoreFull(operation, errno.ENOSPC, needed_bytes, free)


def make_directory(path: Path) -> None:
    """Make path and its missing parents, mode 0700. Raises OSError."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, DIRECTORY_MODE)
        sync_directory(directory.parent)


def open_regular(path: Path) -> int:
    """A descriptor of a regular file that is no link; a file that this process has open already may
    be meant by OPEN_FILES. Raises OSError, BlobDamaged."""
    flags = os.O_RDONLY | O_CLOEXEC | O_NONBLOCK
    flags |= 0 if path.parent == OPEN_FILES else O_NOFOLLOW
    try:
        descriptor = open_file(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BlobDamaged(f"{path.name} is a link, not a file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BlobDamaged(f"{path.name} is not a regular file")
    return descriptor


def read_small(path: Path, limit_bytes: int) -> bytes:
    """At most limit_bytes + 1 bytes of a small file of the user's own, which may be a link to one.
    Raises OSError, also for what is no file: a pipe would be waited for."""
    descriptor = open_file(path, os.O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        return file.read(limit_bytes + 1)


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """At most limit_bytes + 1 bytes of a regular file that is no link.

    Raises OSError, BlobDamaged.
    """
    with open(open_regular(path), "rb") as file:
        return file.read(limit_bytes + 1)


@contextlib.contextmanager
def whole_path(target: Path) -> Iterator[Path]:
    """A path at which to write the file target, which appears when the block has ended and it is
    on the disk; a failure leaves nothing. Raises OSError."""
    partial = target.with_name(f"{target.name}.partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        replace(partial, target)
        sync_directory(target.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[int]:
    """A descriptor for writing the file target; see whole_path."""
    with whole_path(target) as path, open(create_file(path), "wb", buffering=0) as file:
        yield file.fileno()


class TempFile:
    """A file that is being written. publish gives it its name; discard leaves nothing."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, directory: Path, prefix: str) -> None:
        """Open a fresh file in directory, mode 0600. Raises OSError."""
        self.path = directory / f"{prefix}{uuid.uuid4().hex}"
        self._descriptor: int | None = create_file(self.path)

    def write(self, content: bytes | memoryview) -> None:
        """Append all of content. Raises OSError."""
        if self._descriptor is None:
            raise ValueError("the file is closed")
        write_all(self._descriptor, content)

    def sync(self) -> None:
        """Put the content on the disk. Raises OSError."""
        if self._descriptor is None:
            raise ValueError("the file is closed")
        os.fsync(self._descriptor)

    def publish(self, target: Path, *, durable: bool = True) -> None:
        """Put the content on the disk, then give it the name target. durable False: do not wait
        for the disk, so that a power loss may leave a part of it. Raises OSError."""
        if durable:
            self.sync()
        self._close()
        replace(self.path, target)
        if durable:
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


def set_aside(path: Path) -> Path:
    """Rename whatever is there, damaged and perhaps not even a file, to a name that says so;
    returns the name. Raises OSError."""
    for number in range(1, _MAX_SET_ASIDE + 1):
        aside = path.with_name(f"{path.name}.damaged-{number}")
        if not os.path.lexists(aside):
            break
    os.rename(path, aside)
    return aside


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only this user may read; its folder is made if need be. Raises OSError."""
    make_directory(path.parent)
    write_file(path.parent, path, content)


def write_unsynced(path: Path, content: bytes) -> None:
    """As write_private, without waiting for the disk: a power loss may leave a part of it. Raises
    OSError."""
    make_directory(path.parent)
    file = TempFile(path.parent, ".")
    try:
        file.write(content)
        file.publish(path, durable=False)
    finally:
        file.discard()


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
