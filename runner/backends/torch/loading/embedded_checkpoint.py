"""The tensors of a quantized checkpoint that a GGUF file keeps as it was, under its own names.

See modelfile/convert/prequantized.py, which writes such files. Reads through a memory map.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from registry.errors import shown
from registry.formats.gguf import GgufHeader, LazyArray
from registry.formats.gguf.header import CHECKPOINT, TensorInfo
from runner.backends.torch.config import Config, config_from
from runner.backends.torch.loading.mapped_file import FilePart, MappedFiles
from runner.backends.torch.loading.safetensors import DTYPES
from runner.backends.torch.loading.weight_source import Cut, WeightSource
from runner.errors import ModelLoadFailed


class EmbeddedCheckpoint(WeightSource):
    """The tensors of a GGUF file that keeps a checkpoint's own."""

    def __init__(self, header: GgufHeader) -> None:
        """Raises ModelLoadFailed where the file's types are not those of its tensors."""
        types = header.metadata.get(CHECKPOINT.types)
        types = types.load() if isinstance(types, LazyArray) else types
        names = tuple(types) if isinstance(types, list | tuple) else ()
        if len(names) != len(header.tensors):
            raise ModelLoadFailed(
                f"{header.path.name} names {len(names)} types for {len(header.tensors)} tensors"
            )
        self._tensors: dict[str, tuple[TensorInfo, str]] = {}
        for info, kind in zip(header.tensors, names, strict=True):
            _check(info, kind)
            self._tensors[info.name] = info, kind
        self._header = header
        self._files = MappedFiles()
        self.names: Collection[str] = self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """See WeightSource. A single number is a tensor of one."""
        return tuple(reversed(self._tensors[name][0].dimensions))

    def read(self, name: str, *, keep: bool = False, cut: Cut | None = None) -> Any:
        info, kind = self._tensors[name]
        start = self._header.data_offset + info.offset
        part = FilePart(self._header.path, start, info.size_bytes, self.shape(name))
        return self._files.tensor(part, DTYPES[kind], keep=keep, cut=cut)


def embedded_config(header: GgufHeader) -> Config:
    """The config.json that the file keeps. Raises ConvertError."""
    return config_from(str(header.metadata[CHECKPOINT.config]))


def _check(info: TensorInfo, kind: object) -> None:
    if kind not in DTYPES or DTYPES[str(kind)].itemsize * info.elements != info.size_bytes:
        raise ModelLoadFailed(
            f"tensor {shown(info.name)} of {info.size_bytes} bytes cannot be {shown(str(kind))}"
        )
