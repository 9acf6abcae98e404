"""Files and folders of this user alone, and their reading."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.file_system import O_CLOEXEC, O_NONBLOCK, open_file


@contextmanager
def private_files() -> Iterator[None]:
    """What the block makes is for this user only, whatever the umask says otherwise. Of the whole
    process: for short blocks."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def read_regular(path: Path, max_bytes: int = 16 << 20) -> bytes:
    """A file's content, at most max_bytes of it; does not block on a pipe in its place. Raises
    OSError."""
    with open(open_file(path, os.O_RDONLY | O_NONBLOCK | O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read(max_bytes)
