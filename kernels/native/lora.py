"""The matrices of LoRA adapters as lora.h has them, from NumPy arrays, and maps that they act on.

Knows no models and no files.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as GgmlType

TILE = 16  # HEARTH_LORA_TILE
_BLOCK = 32  # of Q8_0
LARGEST = float(np.finfo(np.float16).max)

Floats = npt.NDArray[np.float32]
# hearth_lora_acting; column -1: all columns
ACTING = np.dtype([("column", "i8"), ("adapter", "i4"), ("scale", "f4")], align=True)


def no_adapters() -> npt.NDArray[Any]:
    """Nothing acts."""
    return np.empty(0, ACTING)


class Format(IntEnum):
    """See hearth_lora_format."""

    F16 = 0
    BYTES = 1
    F32 = 2


class LoraMatrices(NamedTuple):
    """a [rank, in] and b [out, rank], which add b @ a @ x to the product of a matrix with x, and
    gain [out], by which that product is multiplied and added too (DoRA); None: it is not."""

    a: Floats
    b: Floats
    gain: Floats | None = None


class Pair(ctypes.Structure):
    """See hearth_lora_pair."""

    _fields_ = (
        ("columns", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("format", ctypes.c_int64),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("b_scale", ctypes.c_void_p),
        ("gain", ctypes.c_void_p),
    )


class Part(ctypes.Structure):
    """See hearth_lora_part."""

    _fields_ = (
        ("offset", ctypes.c_int64),
        ("out", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("pairs", ctypes.c_void_p),
    )


class Step(ctypes.Structure):
    """See hearth_lora_step."""

    _fields_ = (("acting", ctypes.c_void_p), ("count", ctypes.c_int64))


def has_f16(matrices: LoraMatrices) -> bool:
    """Whether float16 has the numbers of a and b; no NaN among them."""
    return all(np.abs(part).max(initial=0.0) <= LARGEST for part in (matrices.a, matrices.b))


def packed_pair(matrices: LoraMatrices, format: Format) -> tuple[Pair, list[npt.NDArray[Any]]]:
    """The matrices in a format, and the arrays whose memory is used. Format.BYTES becomes F16 for
    inputs that are no multiple of 32."""
    (rank, columns), rows = matrices.a.shape, len(matrices.b)
    if format is Format.BYTES and columns % _BLOCK:
        format = Format.F16
    padded = np.zeros((-(-rows // TILE) * TILE, rank), np.float32)
    padded[:rows] = matrices.b
    scales = np.ones(len(padded), np.float32)
    down: npt.NDArray[Any] = matrices.a
    dtype: npt.DTypeLike = np.float32
    match format:
        case Format.BYTES:
            scales = np.abs(padded).max(axis=1, initial=0.0) / np.float32(127)
            padded = np.rint(padded / np.where(scales, scales, 1)[:, None])
            down, dtype = gguf.quantize(down, GgmlType.Q8_0), np.int8
        case Format.F16:
            down, dtype = down.astype(np.float16), np.float16
    tiles = padded.reshape(-1, TILE, rank).swapaxes(1, 2).astype(dtype)
    arrays = [np.ascontiguousarray(each) for each in (down, tiles, scales)]
    if matrices.gain is not None:
        gain = np.zeros(len(padded), np.float32)
        gain[:rows] = matrices.gain
        arrays.append(gain)
    return Pair(columns, rows, rank, format, *(each.ctypes.data for each in arrays)), arrays


class LoraParts:
    """What adapters add to a map whose outputs are several matrices', by the numbers of adapters.

    parts, count: of hearth_lora_part, at the same address as long as this lives.
    """

    def __init__(self, outputs: Sequence[int], *, narrow: bool) -> None:
        """outputs: of the matrices, which follow each other. narrow: adapters may be rounded to
        float16, where it has their numbers."""
        self.count = len(outputs)
        self.parts = (Part * self.count)()
        self._narrow = narrow
        self._with_gains: set[int] = set()
        self._pairs: list[dict[int, tuple[Pair, list[npt.NDArray[Any]]]]] = []
        self._tables: list[ctypes.Array[Pair]] = []
        offset = 0
        for part, out in zip(self.parts, outputs, strict=True):
            part.offset, part.out = offset, out
            offset += out
            self._pairs.append({})
            self._tables.append((Pair * 0)())

    def __bool__(self) -> bool:
        return any(self._pairs)

    def multiplies(self, acting: npt.NDArray[Any]) -> bool:
        """Whether an adapter of acting, of ACTING, has gains: y is to be the bare product then."""
        return bool(self._with_gains) and not self._with_gains.isdisjoint(
            acting["adapter"].tolist()
        )

    def put(self, adapter: int, matrices: Sequence[LoraMatrices | None]) -> None:
        """Replace an adapter's, of each part; None: it adds nothing."""
        self._with_gains.discard(adapter)
        if any(given is not None and given.gain is not None for given in matrices):
            self._with_gains.add(adapter)
        for at, given in enumerate(matrices):
            pairs = self._pairs[at]
            pairs.pop(adapter, None)
            if given is not None:
                half = self._narrow and has_f16(given)
                pairs[adapter] = packed_pair(given, Format.F16 if half else Format.F32)
            table = (Pair * (max(pairs, default=-1) + 1))()
            for number, (pair, _) in pairs.items():
                table[number] = pair
            self._tables[at] = table
            self.parts[at].count = len(table)
            self.parts[at].pairs = ctypes.addressof(table)

    def remove(self, adapter: int) -> None:
        """It adds nothing any more."""
        self.put(adapter, [None] * self.count)
