"""Bytes of files through memory maps, brought into memory as they are asked for.

Knows no format. The maps are private: writing into one, which nobody does, would not reach the
file.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import torch

from runner.backends.torch.loading.weight_source import Cut
from runner.memory_maps import advise

Tensor = Any
# Of Linux 5.14; the module mmap has no name for it. A page at a time is mapped without it.
_MADV_POPULATE_READ = 22 if sys.platform == "linux" else None
# A fault maps the pages beside it too, so many bytes by default: touching one page of them takes a
# third of the time that MADV_POPULATE_READ takes (78 GB/s for 23).
_FAULT_AROUND_BYTES = 1 << 16
# Dropping a part of a huge page drops the whole, and what is kept may lie in it
_MIN_DROPPED_BYTES = 4 << 20
_READ_BYTES = 1 << 20  # at a time, of what is read and not mapped


@dataclass(frozen=True, slots=True)
class FilePart:
    """A tensor of this shape in the bytes of a file from start on."""

    path: Path
    start: int
    size_bytes: int
    shape: tuple[int, ...]


class MappedFiles:
    """Files mapped into memory, one at a time."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._map: mmap.mmap | None = None
        self._range = (0, 0)
        self._kept = False
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def read(self, path: Path, start: int, size_bytes: int, *, keep: bool = False) -> Tensor:
        """These bytes as uint8 [size_bytes], not none of them. Their pages go back to the system's
        cache at the next call, unless keep says that they will be used."""
        if self._map is None or path != self._path:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            self._path, self._range = path, (0, 0)
        if self._range[1] > (_MIN_DROPPED_BYTES if self._kept else 0):
            advise(self._map, getattr(mmap, "MADV_DONTNEED", None), *self._range)
        found = torch.frombuffer(self._map, dtype=torch.uint8, count=size_bytes, offset=start)
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        pages = (first, start + size_bytes - first)
        self._range = (0, 0) if keep else pages
        self._kept |= keep
        found[::_FAULT_AROUND_BYTES].max()
        if not _resident(found):
            advise(self._map, _MADV_POPULATE_READ, *pages)
        return found

    def tensor(
        self, part: FilePart, dtype: Any, *, keep: bool = False, cut: Cut | None = None
    ) -> Tensor:
        """The tensor, or what cut leaves of it: rows in place, without a look at the others; of a
        cut through the rows a copy."""
        shape = part.shape if cut is None else cut.shape(part.shape)
        content = self.cut(part, cut, keep=keep)
        return content.view(-1).view(dtype).view(shape)

    def cut(self, part: FilePart, cut: Cut | None, *, keep: bool = False) -> Tensor:
        """The bytes of that, uint8, in rows where the cut goes through them."""
        if cut is None:
            return self.read(part.path, part.start, part.size_bytes, keep=keep)
        rows, entries = prod(part.shape[: cut.dimension]), part.shape[cut.dimension]
        row = part.size_bytes // rows
        first, last = cut.start * row // entries, cut.stop * row // entries
        if rows == 1:
            return self.read(part.path, part.start + first, last - first, keep=keep)
        return self._columns(part, rows, first, last)

    def _columns(self, part: FilePart, rows: int, first: int, last: int) -> Tensor:
        """uint8 [rows, last - first]: these bytes of each row. Read and not mapped: pages of what
        lies between would stay where others beside them are kept. By one buffer for all calls: one
        for each would leave holes of its size between the results."""
        width = part.size_bytes // rows
        step = max(1, _READ_BYTES // width)
        found = torch.empty((rows, last - first), dtype=torch.uint8)
        if len(self._buffer) < step * width:
            self._buffer = torch.empty(step * width, dtype=torch.uint8)
        with part.path.open("rb", buffering=0) as file:
            for start in range(0, rows, step):
                count = min(step, rows - start)
                buffer = self._buffer[: count * width]
                content = memoryview(buffer.numpy())
                file.seek(part.start + start * width)
                while content:
                    read = file.readinto(content)
                    if not read:
                        raise OSError(f"{part.path.name} ends in the middle of a tensor")
                    content = content[read:]
                found[start : start + count] = buffer.view(count, width)[:, first:last]
        return found


def _resident(content: Tensor) -> bool:
    """Whether all pages of uint8 [n] are in memory; False where the system does not tell."""
    ask = _mincore()
    if ask is None:
        return False
    start = content.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    size_bytes = content.data_ptr() + len(content) - start
    pages = torch.empty(-(-size_bytes // mmap.PAGESIZE), dtype=torch.uint8)
    return ask(start, size_bytes, pages.data_ptr()) == 0 and bool((pages & 1).all())


@cache
def _mincore() -> Any:
    """mincore(2); None where it is none of Linux."""
    found = getattr(ctypes.CDLL(None), "mincore", None) if sys.platform == "linux" else None
    if found is not None:
        found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return found
