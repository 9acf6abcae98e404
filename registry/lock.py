"""The owner's lock on a store: one process writes. It ends with the process, so it is never
stale; the process id in the file is for people only."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from registry.atomic import set_aside
from registry.descriptors import O_CLOEXEC, O_NOFOLLOW, lock, open_file, pread, pwrite
from registry.errors import StoreLocked

FILE_NAME = ".hearth.lock"


class StoreLock:
    """A held lock. release gives it back; so does the end of the process."""

    __slots__ = ("_descriptor",)

    def __init__(self, root: Path) -> None:
        """Take the lock of the store at root. Raises StoreLocked, OSError."""
        flags = os.O_RDWR | os.O_CREAT | O_NOFOLLOW | O_CLOEXEC
        path = root / FILE_NAME
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path).st_mode):
                set_aside(path)
        descriptor = open_file(path, flags, 0o600)
        try:
            lock(descriptor)
            os.ftruncate(descriptor, 0)
            pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except OSError as error:
            owner = _owner(descriptor)
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise StoreLocked(owner) from None
            raise
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Give the lock back. Calling it twice is allowed."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _owner(descriptor: int) -> int | None:
    try:
        text = pread(descriptor, 32, 0).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
