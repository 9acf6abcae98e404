"""The tensors of a Hugging Face checkpoint: one safetensors file or several, memory-mapped.

Headers are checked before a byte of weights is touched, pickles refused (see
modelfile/convert/checkpoint.py). Knows no architecture.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch

from modelfile.convert.checkpoint import read_tensors
from registry.formats.safetensors import TensorEntry

DTYPES: Final = MappingProxyType(
    {
        "BOOL": torch.bool,
        "U8": torch.uint8,
        "I8": torch.int8,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "F8_E8M0": torch.float8_e8m0fnu,
        "U16": torch.uint16,
        "I16": torch.int16,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "U32": torch.uint32,
        "I32": torch.int32,
        "F32": torch.float32,
        "U64": torch.uint64,
        "I64": torch.int64,
        "F64": torch.float64,
    }
)
# Of Linux 5.14; the module mmap has no name for it. A page at a time is mapped without it.
_POPULATE = 22 if sys.platform == "linux" else None


class MappedBytes:
    """Files mapped into memory, one at a time. The map is private: writing into it, which nobody
    does, would not reach the file."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._map: mmap.mmap | None = None
        self._range = (0, 0)

    def read(self, path: Path, start: int, size_bytes: int) -> Any:
        """These bytes as uint8 [size_bytes], not none of them. The pages of those read before go
        back to the system's cache."""
        if self._map is None or path != self._path:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            self._path, self._range = path, (0, 0)
        if self._range[1]:
            _advise(self._map, getattr(mmap, "MADV_DONTNEED", None), self._range)
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        self._range = (first, start + size_bytes - first)
        _advise(self._map, _POPULATE, self._range)
        return torch.frombuffer(self._map, dtype=torch.uint8, count=size_bytes, offset=start)


def _advise(map: mmap.mmap, advice: int | None, range: tuple[int, int]) -> None:
    if advice is None:
        return
    try:
        map.madvise(advice, *range)
    except OSError:
        return  # a kernel that does not know it: slower, not wrong


class Checkpoint:
    """See weights.TensorSource."""

    def __init__(self, folder: Path, rename: Callable[[str], str | None] | None = None) -> None:
        """rename: what a tensor is called here, None for one to leave out. Raises ConvertError
        for a pickle or a folder without weights, InvalidSafetensors, OSError."""
        files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
        found: dict[str, TensorEntry] = read_tensors(files)
        if rename is not None:
            named = ((rename(name), entry) for name, entry in found.items())
            found = {name: entry for name, entry in named if name is not None}
        self._entries = found
        self._files = MappedBytes()
        self.names: Collection[str] = self._entries.keys()

    @property
    def size_bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(entry.size_bytes for entry in self._entries.values())

    def shape(self, name: str) -> tuple[int, ...]:
        """See TensorSource."""
        return self._entries[name].shape

    def read(self, name: str) -> Any:
        """See TensorSource."""
        entry = self._entries[name]
        dtype = DTYPES[entry.dtype]
        if not entry.elements:
            return torch.empty(entry.shape, dtype=dtype)
        content = self._files.read(entry.path, entry.start, entry.size_bytes)
        return content.view(dtype).view(entry.shape)

    def rows(self, name: str) -> None:
        """See TensorSource: there are none."""
