"""Linear maps whose weights stay quantized on the device, or are unpacked once for a CPU.

One class for each way of packing; they meet in PackedWeight. How a checkpoint names and stores
them is loading/quantization.py's matter, what the bytes mean that of kernels/quant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernels import ops
from kernels.quant import fp8, gguf, int4, int8
from kernels.quant.int4 import Int4Weight
from runner.backends.torch.layers.linear import ConcatenatedLinear, Linear

Tensor = Any


class PackedWeight(Protocol):
    """Weights [outputs, inputs] in some packed form."""

    def dense(self, dtype: Any) -> Tensor:
        """The weights [outputs, inputs] in dtype."""

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x [T, inputs] times the weights, transposed, plus bias [outputs]."""


@dataclass(frozen=True, slots=True)
class Int4PackedWeight:
    """Four bits in groups: GPTQ, AWQ, compressed-tensors."""

    weight: Int4Weight

    def dense(self, dtype: Any) -> Tensor:
        """See PackedWeight."""
        return int4.dequantize(self.weight, dtype)

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """See PackedWeight."""
        return ops.linear_w4a16(x, self.weight, bias)


@dataclass(frozen=True, slots=True)
class Int8PackedWeight:
    """int8 [outputs, inputs] with scales [outputs, groups]."""

    weight: Tensor
    scales: Tensor

    def dense(self, dtype: Any) -> Tensor:
        """See PackedWeight."""
        return int8.dequantize(self.weight, self.scales, dtype)

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """See PackedWeight."""
        return ops.linear_w8a16(x, self.weight, self.scales, bias)


@dataclass(frozen=True, slots=True)
class Fp8PackedWeight:
    """float8_e4m3fn [outputs, inputs] with one scale, one a row, or one a block of 128 x 128."""

    weight: Tensor
    scale: Tensor

    def dense(self, dtype: Any) -> Tensor:
        """See PackedWeight."""
        return fp8.dequantize(self.weight, self.scale, dtype)

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """See PackedWeight."""
        return ops.linear_fp8(x, self.weight, self.scale, bias)


@dataclass(frozen=True, slots=True)
class GgufPackedWeight:
    """Rows uint8 [outputs, bytes of a row] in one of GGUF's block formats."""

    rows: Tensor
    kind: str

    def dense(self, dtype: Any) -> Tensor:
        """See PackedWeight."""
        return gguf.dequantize(self.rows, self.kind).to(dtype)

    def multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """See PackedWeight."""
        return ops.linear_gguf(x, self.rows, self.kind, bias)


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """See linear.Linear."""

    weight: PackedWeight
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """See linear.Linear."""
        return self.weight.multiply(x, self.bias)


def join_packed(weights: Sequence[PackedWeight], biases: Sequence[Tensor | None]) -> Linear:
    """Maps of the same inputs as one; in one product where they are packed alike."""
    joined = weights[0] if len(weights) == 1 else _joined(weights)
    if joined is not None:
        given = [bias for bias in biases if bias is not None]
        return PackedLinear(joined, torch.cat(given) if given else None)
    return ConcatenatedLinear([PackedLinear(w, b) for w, b in zip(weights, biases, strict=True)])


def _joined(weights: Sequence[PackedWeight]) -> PackedWeight | None:
    first = weights[0]
    if isinstance(first, Int4PackedWeight):
        return _joined_int4([item.weight for item in weights if isinstance(item, Int4PackedWeight)])
    if isinstance(first, GgufPackedWeight):
        parts = [item for item in weights if isinstance(item, GgufPackedWeight)]
        if all(item.kind == first.kind for item in parts):
            return GgufPackedWeight(torch.cat([item.rows for item in parts]), first.kind)
    if isinstance(first, Int8PackedWeight):
        found = [item for item in weights if isinstance(item, Int8PackedWeight)]
        scales = torch.cat([item.scales for item in found])
        return Int8PackedWeight(torch.cat([item.weight for item in found]), scales)
    if isinstance(first, Fp8PackedWeight):
        return _joined_fp8([item for item in weights if isinstance(item, Fp8PackedWeight)])
    return None


def _joined_int4(weights: Sequence[Int4Weight]) -> PackedWeight | None:
    if any(weight.order is not None for weight in weights):
        return None  # each part has its own order of the inputs
    return Int4PackedWeight(
        Int4Weight(
            torch.cat([weight.packed for weight in weights]),
            torch.cat([weight.scales for weight in weights]),
            torch.cat([weight.zeros for weight in weights]),
        )
    )


def _joined_fp8(weights: Sequence[Fp8PackedWeight]) -> PackedWeight | None:
    blocks = any(_in_blocks(item) for item in weights)
    if blocks and any(len(item.weight) % fp8.BLOCK for item in weights):
        return None  # a block of scales would lie across two parts
    scales = [
        item.scale if blocks else item.scale.float().reshape(-1).expand(len(item.weight))
        for item in weights
    ]
    return Fp8PackedWeight(torch.cat([item.weight for item in weights]), torch.cat(scales))


def _in_blocks(item: Fp8PackedWeight) -> bool:
    return (
        item.scale.ndim == 2 and item.scale.numel() > 1 and not fp8.per_row(item.weight, item.scale)
    )
