"""File system calls that Windows lacks or has under other names: the only place where the store
depends on the platform. Each side has the same functions; the POSIX side documents them.

The Windows side has never run. Users there cannot create links without a privilege, and their
folders' access lists keep other users out.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

if sys.platform == "win32":
    import _winapi
    import ctypes
    import msvcrt
    from ctypes import wintypes

    O_CLOEXEC = os.O_NOINHERIT | os.O_BINARY
    O_NOFOLLOW, O_NONBLOCK = 1 << 29, 0  # the first is open_file's own
    _SHARE_ALL = 7  # others may read, write, rename and remove what is open
    _ATTRIBUTE_NORMAL = 0x80
    _REPARSE_POINT = 0x400  # links, junctions
    _LOCK_EXCLUSIVE, _FAIL_AT_ONCE, _LOCK_VIOLATION = 2, 1, 33
    _LOCKED_AT_HIGH = 0x7FFFFFFF  # locks are mandatory: of a byte that no file has
    _REPLACE_TRIES, _REPLACE_WAIT_S = 50, 0.02  # scanners and readers have it open for a moment

    class _Overlapped(ctypes.Structure):
        _fields_ = (
            ("internal", ctypes.c_void_p),
            ("internal_high", ctypes.c_void_p),
            ("offset", wintypes.DWORD),
            ("offset_high", wintypes.DWORD),
            ("event", wintypes.HANDLE),
        )

    def open_file(path: str | Path, flags: int, mode: int = 0o777) -> int:  # noqa: ARG001
        """As os.open, but what is open may be renamed and removed."""
        path = os.fspath(path)
        if flags & O_NOFOLLOW and _is_link(path):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        access = 0 if flags & os.O_WRONLY else _winapi.GENERIC_READ
        if flags & (os.O_WRONLY | os.O_RDWR):
            access |= _winapi.GENERIC_WRITE
        if flags & os.O_CREAT:
            found = 1 if flags & os.O_EXCL else 2 if flags & os.O_TRUNC else 4
        else:
            found = 5 if flags & os.O_TRUNC else _winapi.OPEN_EXISTING
        handle = _winapi.CreateFile(path, access, _SHARE_ALL, 0, found, _ATTRIBUTE_NORMAL, 0)
        return msvcrt.open_osfhandle(handle, flags & os.O_APPEND | os.O_NOINHERIT | os.O_BINARY)

    def open_beneath(folder: Path, parts: Sequence[str]) -> int:
        """Open a file for reading of which none of parts, below folder, is a link."""
        path = folder
        for part in parts:
            path /= part
            if _is_link(path):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        return open_file(path, os.O_RDONLY)

    def _is_link(path: str | Path) -> bool:
        with suppress(FileNotFoundError):
            return bool(os.lstat(path).st_file_attributes & _REPARSE_POINT)
        return False

    def replace(source: str | Path, target: str | Path) -> None:
        """As os.replace; waits for those that have target open, for a second."""
        for tried in range(1, _REPLACE_TRIES + 1):
            try:
                os.replace(source, target)
                return
            except PermissionError:
                if tried == _REPLACE_TRIES:
                    raise
                time.sleep(_REPLACE_WAIT_S)

    def sync_directory(path: Path) -> None:
        """Nothing: NTFS has its names in a journal."""

    def allocated_bytes(status: os.stat_result) -> int:
        """Its length: Windows does not report what a sparse file takes."""
        return status.st_size

    def free_names(folder: Path) -> int | None:  # noqa: ARG001
        """None: NTFS counts none."""
        return None

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        """Like os.pread, but moves the position, which no caller relies on."""
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)

    def pwrite(descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """As os.pwrite, likewise."""
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, data)

    def lock(descriptor: int, shared: bool = False) -> None:
        """Take the lock of a file, which ends with its descriptor. Raises BlockingIOError when
        another process has it, OSError."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        at = _Overlapped(offset_high=_LOCKED_AT_HIGH)
        how = _FAIL_AT_ONCE | (0 if shared else _LOCK_EXCLUSIVE)
        handle = wintypes.HANDLE(msvcrt.get_osfhandle(descriptor))
        if not kernel.LockFileEx(handle, how, 0, 1, 0, ctypes.byref(at)):
            if ctypes.get_last_error() == _LOCK_VIOLATION:
                raise BlockingIOError(errno.EWOULDBLOCK, "another process has the lock")
            raise ctypes.WinError(ctypes.get_last_error())

    def clone(source: int, target: int) -> None:  # noqa: ARG001
        """Raises OSError: NTFS has no reflinks."""
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def copy_in_kernel(source: int, target: int, size: int, offset: int) -> int:  # noqa: ARG001
        """Raises OSError: there is no such call for a part of a file."""
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def read_ahead(descriptor: int) -> None:
        """Nothing: the system finds out by itself."""

    def drop_cached(descriptor: int) -> None:
        """Nothing: there is no such call."""
else:
    import fcntl

    O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK = os.O_CLOEXEC, os.O_NOFOLLOW, os.O_NONBLOCK
    _FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    _FICLONE = 0x40049409  # linux/fs.h

    def open_file(path: str | Path, flags: int, mode: int = 0o777) -> int:
        """See os.open."""
        return os.open(path, flags, mode)

    def open_beneath(folder: Path, parts: Sequence[str]) -> int:
        """Open a file for reading of which none of parts, below folder, is a link. Raises OSError:
        with ELOOP or ENOTDIR where one is."""
        descriptor = os.open(folder, _FOLDER)
        for part in parts[:-1]:
            descriptor = _step(descriptor, part, _FOLDER | O_NOFOLLOW)
        return _step(descriptor, parts[-1], os.O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)

    def _step(parent: int, part: str, flags: int) -> int:
        try:
            return os.open(part, flags, dir_fd=parent)
        finally:
            os.close(parent)

    def replace(source: str | Path, target: str | Path) -> None:
        """See os.replace."""
        os.replace(source, target)

    def sync_directory(path: Path) -> None:
        """Make the names in a folder survive a power loss. Raises OSError."""
        descriptor = os.open(path, _FOLDER)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def allocated_bytes(status: os.stat_result) -> int:
        """What a file takes of the disk, which may have holes."""
        return status.st_blocks * 512

    def free_names(folder: Path) -> int | None:
        """How many more files the file system takes (inodes); None where it counts none."""
        try:
            told = os.statvfs(folder)
        except OSError:
            return None
        return told.f_favail if told.f_files else None

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        """See os.pread."""
        return os.pread(descriptor, size, offset)

    def pwrite(descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """See os.pwrite."""
        return os.pwrite(descriptor, data, offset)

    def lock(descriptor: int, shared: bool = False) -> None:
        """Take the lock of a file, which ends with its descriptor; a shared one waits for it.
        Raises BlockingIOError at once when another process has it, OSError."""
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)

    def clone(source: int, target: int) -> None:
        """Let target share the space of source (a reflink). Raises OSError."""
        fcntl.ioctl(target, _FICLONE, source)

    if sys.platform == "darwin":

        def copy_in_kernel(source: int, target: int, size: int, offset: int) -> int:  # noqa: ARG001
            """Raises OSError: macOS has no such call."""
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        def read_ahead(descriptor: int) -> None:
            """Nothing: the system finds out by itself."""

        def drop_cached(descriptor: int) -> None:
            """Nothing: there is no such call."""
    else:

        def copy_in_kernel(source: int, target: int, size: int, offset: int) -> int:
            """Copy at most size bytes from offset on; gives how many. Raises OSError, also where
            the file system cannot."""
            return os.copy_file_range(source, target, size, offset)

        def read_ahead(descriptor: int) -> None:
            """The file is read from its beginning to its end."""
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)

        def drop_cached(descriptor: int) -> None:
            """Let the system forget what it has of the file in memory."""
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
