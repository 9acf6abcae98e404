"""The tensors of a GGUF file under their Hugging Face names, as floats.

Takes back what llama.cpp's converters did (see gguf_names.py). Reads through a memory map.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import gguf
import numpy as np
import torch

from kernels.quant.gguf import FORMATS
from registry.formats.gguf import GgufHeader
from registry.formats.gguf.header import TensorInfo
from runner.backends.torch.loading.gguf_names import ModelCounts, TensorOrigin, tensor_origins
from runner.backends.torch.loading.mapped_file import FilePart, MappedFiles
from runner.backends.torch.loading.weight_source import Cut, WeightSource

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read_counts(header: GgufHeader) -> ModelCounts:
    """The numbers of a file's model that names depend on."""
    return ModelCounts(
        header.block_count or 0,
        header.head_count or 0,
        header.head_count_kv or 0,
        header.expert_count or 0,
    )


class StoredTensors:
    """The tensors of a GGUF file under its own names."""

    def __init__(self, header: GgufHeader) -> None:
        self.infos: dict[str, TensorInfo] = {tensor.name: tensor for tensor in header.tensors}
        self._header = header
        self._files = MappedFiles()

    def has(self, name: str) -> bool:
        """The file has this tensor."""
        return name in self.infos

    def bytes(
        self, name: str, expert: int | None = None, *, keep: bool = False, cut: Cut | None = None
    ) -> Any:
        """uint8 [bytes], of one expert where the tensor is a stack of them; keep, cut as for
        read."""
        info = self.infos[name]
        start, size = self._header.data_offset + info.offset, info.size_bytes
        if expert is not None:
            size //= info.dimensions[-1]
            start += expert * size
        part = FilePart(self._header.path, start, size, self._shape(info, expert))
        return self._files.cut(part, cut, keep=keep).view(-1)

    def floats(
        self, name: str, expert: int | None = None, *, keep: bool = False, cut: Cut | None = None
    ) -> Any:
        """As float32, or the type of plain floats; keep, cut as for read."""
        info = self.infos[name]
        shape = self._shape(info, expert)
        shape = shape if cut is None else cut.shape(shape)
        plain = _PLAIN.get(info.type)
        content = self.bytes(name, expert, keep=keep and plain is not None, cut=cut)
        if plain is not None:
            return content.view(plain).view(shape)
        kind = gguf.GGMLQuantizationType[info.type]
        rows = content.numpy().reshape(-1, content.numel() * shape[-1] // int(np.prod(shape)))
        return torch.from_numpy(gguf.quants.dequantize(rows, kind)).view(shape)

    def _shape(self, info: TensorInfo, expert: int | None) -> tuple[int, ...]:
        shape = tuple(reversed(info.dimensions))
        return shape if expert is None else shape[1:]


class GgufTensors(WeightSource):
    """The tensors of a GGUF file by their names in checkpoints."""

    def __init__(self, header: GgufHeader) -> None:
        self._stored = StoredTensors(header)
        self._origins = tensor_origins(
            header.architecture, read_counts(header), self._stored.infos.keys()
        )
        self.names: Collection[str] = self._origins.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        origin = self._origins[name]
        whole = tuple(reversed(self._stored.infos[origin.name].dimensions))
        return whole if origin.expert is None else whole[1:]

    def read(self, name: str, *, keep: bool = False, cut: Cut | None = None) -> Any:
        """See WeightSource: as float32, or the type of plain floats."""
        origin = self._origins[name]
        keep = keep and origin.heads is None and not origin.shift
        values = self._stored.floats(origin.name, origin.expert, keep=keep, cut=cut)
        values = self._halves(name, origin, values)
        return values - origin.shift if origin.shift else values

    def rows(
        self, name: str, *, keep: bool = False, cut: Cut | None = None
    ) -> tuple[str, Any] | None:
        origin = self._origins[name]
        info = self._stored.infos[origin.name]
        if info.type not in FORMATS or origin.shift:
            return None
        keep = keep and origin.heads is None
        content = self._stored.bytes(origin.name, origin.expert, keep=keep, cut=cut)
        whole = self.shape(name)
        rows = content.view(whole[0] if cut is None else cut.shape(whole)[0], -1)
        return info.type, self._halves(name, origin, rows)

    def block(self, name: str) -> int:
        kind = self._stored.infos[self._origins[name].name].type
        block, _ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        return int(block)

    def _halves(self, name: str, origin: TensorOrigin, values: Any) -> Any:
        """Rows of whole heads as checkpoints have them."""
        if origin.heads is None:
            return values
        return split_halves(values, origin.heads * len(values) // self.shape(name)[0])


def split_halves(values: Any, heads: int) -> Any:
    """Rows of neighbouring pairs, for each head, as its two halves."""
    rows = values.shape[0]
    paired = values.reshape(heads, rows // heads // 2, 2, *values.shape[1:])
    return paired.transpose(1, 2).reshape(values.shape)
