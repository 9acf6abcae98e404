"""The tensors of a Hugging Face checkpoint: one safetensors file or several, memory-mapped.

Headers are checked before a byte of weights is touched, pickles refused (see
modelfile/convert/checkpoint.py). Knows no architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch

from registry.formats.safetensors import TensorEntry
from runner.backends.torch.config import read_tensors
from runner.backends.torch.loading.mapped_file import FilePart, MappedFiles
from runner.backends.torch.loading.weight_source import Cut, WeightSource

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


class SafetensorsCheckpoint(WeightSource):
    """The .safetensors files of a folder."""

    def __init__(self, folder: Path, rename: Callable[[str], str | None] | None = None) -> None:
        """rename: what a tensor is called here, None for one to leave out. Raises ConvertError
        for a pickle or a folder without weights, InvalidSafetensors, OSError."""
        files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
        found: dict[str, TensorEntry] = read_tensors(files)
        if rename is not None:
            named = ((rename(name), entry) for name, entry in found.items())
            found = {name: entry for name, entry in named if name is not None}
        self._entries = found
        self._files = MappedFiles()
        self.names: Collection[str] = self._entries.keys()

    @property
    def size_bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(entry.size_bytes for entry in self._entries.values())

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def read(self, name: str, *, keep: bool = False, cut: Cut | None = None) -> Any:
        entry = self._entries[name]
        dtype = DTYPES[entry.dtype]
        if not entry.elements:
            return torch.empty(entry.shape, dtype=dtype)
        part = FilePart(entry.path, entry.start, entry.size_bytes, entry.shape)
        return self._files.tensor(part, dtype, keep=keep, cut=cut)
