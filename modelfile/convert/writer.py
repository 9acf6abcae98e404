"""Writing a GGUF file whose layout is known, tensor by tensor.

The file has its name when it is complete; a failure leaves nothing. At no time is more than a
few MiB, or one head of one projection, in memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from modelfile.convert.layout import FileLayout, padded
from modelfile.convert.tensor_data import ComputedTensor, CopiedTensor, TensorSource
from modelfile.errors import ConvertError
from registry.atomic import FILE_MODE, open_regular, sync_directory

Content = TensorSource | CopiedTensor | ComputedTensor
Report = Callable[[str, int, int], None]  # status, bytes written, bytes in all
STATUS: Final = "converting"

_COPY_BYTES: Final = 16 << 20
_NO_COPY: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


def write(target: Path, layout: FileLayout, contents: Sequence[Content], report: Report) -> None:
    """Write the file; contents: one for each place of the layout. Raises ConvertError, OSError."""
    free = shutil.disk_usage(target.parent).free
    if free < layout.size_bytes:
        raise OSError(errno.ENOSPC, f"{layout.size_bytes} bytes are needed, {free} are free")
    beginning = target.with_name(f"{target.name}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beginning, flags, FILE_MODE)
    try:
        with open(descriptor, "wb", buffering=0):
            _write_all(descriptor, layout, contents, report)
            os.fsync(descriptor)
        os.replace(beginning, target)
        sync_directory(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beginning)
        raise


def _write_all(
    output: int, layout: FileLayout, contents: Sequence[Content], report: Report
) -> None:
    _put(output, layout.header)
    done = len(layout.header)
    for place, content in zip(layout.places, contents, strict=True):
        written = 0
        for count in _tensor(output, content):
            written += count
            report(STATUS, done + written, layout.size_bytes)
        if written != place.size_bytes:
            raise ConvertError(f"{place.name}: {written} bytes, planned {place.size_bytes}")
        _put(output, bytes(padded(written) - written))
        done += padded(written)
    report(STATUS, layout.size_bytes, layout.size_bytes)


def _tensor(output: int, content: Content) -> Iterator[int]:
    """Writes one tensor; gives the bytes of each piece."""
    if isinstance(content, CopiedTensor) or (isinstance(content, TensorSource) and content.plain):
        for entry, start, size_bytes in content.ranges():
            source = open_regular(entry.path)
            try:
                yield from _copy(source, start, size_bytes, output, entry.path.name)
            finally:
                os.close(source)
        return
    for piece in content.pieces():
        yield _put(output, piece.data.cast("B"))


def _copy(source: int, start: int, size_bytes: int, output: int, name: str) -> Iterator[int]:
    """Copies a range within the kernel, through memory where the file system cannot."""
    end, in_kernel = start + size_bytes, hasattr(os, "copy_file_range")
    while start < end:
        wanted = min(_COPY_BYTES, end - start)
        if in_kernel:
            try:
                count = os.copy_file_range(source, output, wanted, start)
            except OSError as error:
                if error.errno not in _NO_COPY:
                    raise
                in_kernel = False
                continue
        else:
            count = _put(output, os.pread(source, wanted, start))
        if not count:
            raise ConvertError(f"{name} became shorter while being read", name)
        start += count
        yield count


def _put(output: int, content: bytes | memoryview) -> int:
    view, position = memoryview(content), 0
    while position < len(view):
        position += os.write(output, view[position:])
    return len(view)
