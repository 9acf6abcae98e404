"""Stacks of quantized maps, one for each expert of a mixture: the formats of this folder with one
more dimension in front.

kernels/moe multiplies by them, on a GPU in one launch for all experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from kernels.quant import fp8, gguf, int4, int8, mxfp4
from kernels.quant.int4 import Int4Weight


class _Experts:
    """Maps whose first tensor is [E, N, ...]."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, int]:
        """(E, N)."""
        first: Tensor = getattr(self, next(iter(type(self).__annotations__)))
        return first.shape[0], first.shape[1]


@dataclass(frozen=True, slots=True)
class Int4Experts(_Experts):
    """See Int4Weight: packed uint8 [E, N, C / 2], scales [E, N, groups], zeros uint8
    [E, N, groups]; the columns in their own order."""

    packed: Tensor
    scales: Tensor
    zeros: Tensor

    def linear(self, x: Tensor, expert: int, bias: Tensor | None) -> Tensor:
        """x [..., C] times the weights of an expert [N, C], transposed, plus bias [N]."""
        weight = Int4Weight(self.packed[expert], self.scales[expert], self.zeros[expert])
        return int4.linear(x, weight, bias)


@dataclass(frozen=True, slots=True)
class Int8Experts(_Experts):
    """weight int8 [E, N, C], scales [E, N, groups]."""

    weight: Tensor
    scales: Tensor

    def linear(self, x: Tensor, expert: int, bias: Tensor | None) -> Tensor:
        """See Int4Experts."""
        return int8.linear(x, self.weight[expert], self.scales[expert], bias)


@dataclass(frozen=True, slots=True)
class Fp8Experts(_Experts):
    """weight float8_e4m3fn [E, N, C]; scales of rows [E, N, 1], or of blocks of 128 x 128
    [E, ceil(N / 128), ceil(C / 128)]."""

    weight: Tensor
    scales: Tensor

    def linear(self, x: Tensor, expert: int, bias: Tensor | None) -> Tensor:
        """See Int4Experts."""
        return fp8.linear(x, self.weight[expert], self.scales[expert], bias)


@dataclass(frozen=True, slots=True)
class Mxfp4Experts(_Experts):
    """blocks uint8 [E, N, C / 32, 16], scales uint8 [E, N, C / 32]."""

    blocks: Tensor
    scales: Tensor

    def linear(self, x: Tensor, expert: int, bias: Tensor | None) -> Tensor:
        """See Int4Experts."""
        return mxfp4.linear(x, self.blocks[expert], self.scales[expert], bias)


@dataclass(frozen=True, slots=True)
class GgufExperts(_Experts):
    """rows uint8 [E, N, bytes of a row] in the format kind."""

    rows: Tensor
    kind: str

    def linear(self, x: Tensor, expert: int, bias: Tensor | None) -> Tensor:
        """See Int4Experts."""
        return gguf.linear(x, self.rows[expert], self.kind, bias)


PackedExperts: TypeAlias = Int4Experts | Int8Experts | Fp8Experts | Mxfp4Experts | GgufExperts
