"""Flags and calls of file descriptors that Windows has not, or has under other names.

Nothing here has run on Windows. A flag that is 0 there protects from links and pipes, which its
users cannot make without a privilege.
"""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import msvcrt

    O_CLOEXEC = os.O_NOINHERIT | os.O_BINARY
    O_NOFOLLOW = O_NONBLOCK = O_DIRECTORY = 0

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        """As os.pread, but moves the position, which nobody relies on."""
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)

    def pwrite(descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """As os.pwrite, likewise."""
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, data)

    def lock(descriptor: int, shared: bool = False) -> None:
        """Take the lock of a file, of a byte beyond its end; readers share none. Raises OSError
        at once when another process has it."""
        if not shared:
            os.lseek(descriptor, 1 << 30, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def clone(source: int, target: int) -> None:  # noqa: ARG001
        """Raises OSError: there are no reflinks."""
        raise OSError("no reflinks here")
else:
    import fcntl

    O_CLOEXEC, O_NOFOLLOW = os.O_CLOEXEC, os.O_NOFOLLOW
    O_NONBLOCK, O_DIRECTORY = os.O_NONBLOCK, os.O_DIRECTORY
    _FICLONE = 0x40049409  # linux/fs.h

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        """See os.pread."""
        return os.pread(descriptor, size, offset)

    def pwrite(descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """See os.pwrite."""
        return os.pwrite(descriptor, data, offset)

    def lock(descriptor: int, shared: bool = False) -> None:
        """Take the lock of a file, which ends with its descriptor; a shared one waits for it.
        Raises OSError at once when another process has it."""
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)

    def clone(source: int, target: int) -> None:
        """Let target share the space of source (a reflink). Raises OSError."""
        fcntl.ioctl(target, _FICLONE, source)
