"""Ways to make a file of another one: sharing its space, giving it a second name, copying bytes.

Knows nothing of blobs, and asks nobody whether it may.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from registry.descriptors import (
    O_CLOEXEC,
    O_NOFOLLOW,
    clone,
    copy_in_kernel,
    open_file,
    pread,
)

FILE_MODE = 0o600
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_CLOEXEC
_COPY_BYTES = 16 << 20  # of a step within the kernel
_READ_BYTES = 1 << 20  # of a step through memory
_NO_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


def create_file(path: Path) -> int:
    """A descriptor of a fresh file, mode 0600, for writing. Raises OSError, also for a name that
    is taken."""
    return open_file(path, _CREATE, FILE_MODE)


def reflink(source: int, target: Path) -> bool:
    """Make target share the space of source; False where the file system cannot."""
    try:
        descriptor = create_file(target)
        try:
            clone(source, descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(target)
        return False
    return True


def second_name(source: int, path: Path, target: Path) -> bool:
    """Link the file that source is, and no link at path; False when that is not possible, or the
    name is another file's by now."""
    try:
        os.link(path, target, follow_symlinks=False)
    except (OSError, NotImplementedError):  # the latter on Windows
        return False
    if os.path.samestat(os.fstat(source), os.lstat(target)):
        return True
    os.unlink(target)
    return False


def write_all(descriptor: int, content: bytes | memoryview) -> int:
    """Write all of content; gives its bytes. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    return len(content)


def copy_range(source: int, start: int, size_bytes: int, output: int) -> Iterator[int]:
    """Write a range of source to output, within the kernel or, where the file system cannot,
    through memory; gives the bytes of each step. Raises EOFError when source ends before, OSError.
    """
    end, in_kernel = start + size_bytes, True
    while start < end:
        wanted = min(_COPY_BYTES, end - start)
        if in_kernel:
            try:
                count = copy_in_kernel(source, output, wanted, start)
            except OSError as error:
                if error.errno not in _NO_COPY:
                    raise
                in_kernel = False
                continue
        else:
            count = write_all(output, pread(source, min(wanted, _READ_BYTES), start))
        if not count:
            raise EOFError
        start += count
        yield count
