"""The bytes of each tensor of the GGUF file, read from the checkpoint piece by piece.

A piece is some rows: a few MiB, or one head of a projection whose rows change places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from modelfile.convert.numerics import WIDTHS, convert_dtype, dtype_of, to_float32
from modelfile.convert.plan import Weight
from modelfile.errors import ConvertError
from registry.atomic import open_regular
from registry.formats.safetensors import TensorEntry

CHUNK_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class TensorSource:
    """Where the bytes of one tensor come from. sources: stacked in this order. factor: what it is
    multiplied by in float32, or each of its rows as the file has them: [rows, 1]."""

    name: str
    type: str
    weight: Weight
    sources: tuple[TensorEntry, ...]
    factor: np.float32 | NDArray[np.float32] | None = None

    @property
    def plain(self) -> bool:
        """True when the bytes are copied as they are."""
        return (
            self.weight.rotary_heads is None
            and not self.weight.shift
            and self.factor is None
            and all(entry.dtype == self.type for entry in self.sources)
        )

    def ranges(self) -> Iterator[tuple[TensorEntry, int, int]]:
        """Entry, first byte in its file and number of bytes, of each stacked part."""
        row = prod(self.weight.shape[1:])
        for entry in self.sources:
            skipped = self.weight.skipped_rows * row * WIDTHS[entry.dtype]
            yield entry, entry.start + skipped, entry.size_bytes - skipped

    def pieces(self) -> Iterator[NDArray[Any]]:
        """The values in the type of the file, piece by piece. Raises ConvertError, OSError."""
        if self.factor is not None:
            values = (self.floats() * self.factor).reshape(-1)
            yield self._in_type(values, "F32", self.sources[0])
            return
        for entry, start, size_bytes in self.ranges():
            with open(open_regular(entry.path), "rb", buffering=0) as file:
                file.seek(start)
                step = self._piece_bytes(WIDTHS[entry.dtype])
                for position in range(0, size_bytes, step):
                    raw = _read(file, min(step, size_bytes - position), entry)
                    yield self._changed(np.frombuffer(raw, dtype_of(entry.dtype)), entry)

    def floats(self) -> NDArray[np.float32]:
        """All of them before they are multiplied, in float32. Raises as pieces does."""
        pieces = list(replace(self, type="F32", factor=None).pieces())
        return np.concatenate(pieces).reshape(self.weight.target_shape)

    def _piece_bytes(self, width: int) -> int:
        if self.weight.rotary_heads is None:
            return CHUNK_BYTES
        head = prod(self.weight.shape) // self.weight.rotary_heads * width
        return head * max(1, CHUNK_BYTES // head)

    def _changed(self, values: NDArray[Any], entry: TensorEntry) -> NDArray[Any]:
        weight, kind = self.weight, entry.dtype
        if weight.rotary_heads is not None:
            values = _interleaved(values, weight.shape, weight.rotary_heads)
        if weight.shift:
            values, kind = to_float32(values, kind) + np.float32(weight.shift), "F32"
        return self._in_type(values, kind, entry)

    def _in_type(self, values: NDArray[Any], kind: str, entry: TensorEntry) -> NDArray[Any]:
        try:
            return convert_dtype(values, kind, self.type)
        except FloatingPointError:
            raise ConvertError(
                f"tensor {entry.name} has values too large for F16; convert to BF16 or F32"
            ) from None


def source_of(
    weight: Weight, entries: Mapping[str, TensorEntry], name: str, type: str
) -> TensorSource:
    """The source of one tensor. name and type: in the GGUF file."""
    return TensorSource(name, type, weight, tuple(entries[part] for part in weight.source_names))


def _interleaved(values: NDArray[Any], shape: tuple[int, ...], heads: int) -> NDArray[Any]:
    """Some whole heads with row i of the first half followed by row i of the second."""
    half, width = shape[0] // heads // 2, prod(shape[1:])
    return values.reshape(-1, 2, half, width).swapaxes(1, 2).reshape(-1)


def _read(file: BinaryIO, size_bytes: int, entry: TensorEntry) -> bytearray:
    content = bytearray(size_bytes)
    view, position = memoryview(content), 0
    while position < size_bytes:
        count = file.readinto(view[position:])  # type: ignore[attr-defined]
        if not count:
            raise ConvertError(f"{entry.path.name} became shorter while being read")
        position += count
    return content
