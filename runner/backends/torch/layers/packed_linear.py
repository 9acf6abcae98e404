"""Linear maps whose weights stay quantized on the device, and several of them put together.

How a checkpoint names and stores them is loading/quantization.py's matter, what the bytes mean that
of kernels/quant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels import ops
from kernels.quant import packed
from kernels.quant.packed import PackedWeight
from kernels.quant.sparse24 import Sparse24Weight
from runner.backends.torch.layers.linear import ConcatenatedLinear, DenseLinear, Linear

Tensor = Any


@dataclass(frozen=True, slots=True)
class PackedLinear(Linear):
    """Weights as the file packs them, and bias [outputs]."""

    weight: PackedWeight
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return ops.linear_packed(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Outliers:
    """The columns [O] of a map's inputs that have weights [outputs, O] in floats; first: of the
    outputs that the map has in the whole."""

    first: int
    columns: Tensor
    weight: Tensor


@dataclass(frozen=True, slots=True)
class OutlierLinear(Linear):
    """A map whose weights are rounded, and zero in some columns, and what those columns add. Which
    they are does not depend on the inputs: a row's bits are the same beside any others."""

    rounded: Linear
    parts: Sequence[Outliers]

    def __call__(self, x: Tensor) -> Tensor:
        out = self.rounded(x)
        for part in self.parts:
            added = torch.nn.functional.linear(x[:, part.columns], part.weight.to(x.dtype))
            out[:, part.first : part.first + added.shape[1]] += added
        return out


def join_packed(weights: Sequence[PackedWeight], biases: Sequence[Tensor | None]) -> Linear:
    """Maps of the same inputs as one; in one product where they are packed alike."""
    joined = weights[0] if len(weights) == 1 else packed.concatenate(weights)
    if joined is not None:
        given = [bias for bias in biases if bias is not None]
        bias = torch.cat(given) if given else None
        if isinstance(joined, Sparse24Weight) and can_skip(joined):
            return DenseLinear(joined.semi_structured(joined.values.dtype), bias)
        return PackedLinear(joined, bias)
    return ConcatenatedLinear([PackedLinear(w, b) for w, b in zip(weights, biases, strict=True)])


def in_dtype(weight: PackedWeight, dtype: Any) -> PackedWeight:
    """Packed weights whose floats, if they have any, are those of the computation."""
    return weight.in_dtype(dtype) if isinstance(weight, Sparse24Weight) else weight


def can_skip(weight: Sparse24Weight) -> bool:
    """Whether torch's kernels multiply the weights without the zeros: those of CUTLASS want 32 rows
    and 64 columns, or multiples. Not tried on a GPU."""
    rows, half = weight.values.shape
    if not weight.values.is_cuda or rows % 32 or half % 32:
        return False
    return bool(torch.cuda.get_device_capability(weight.values.device) >= (8, 0))


def stack_packed(maps: Sequence[Linear]) -> tuple[PackedWeight, Tensor | None] | None:
    """The weights of the experts' maps [E, outputs, inputs] and their biases [E, outputs]. None
    where they are not packed alike. The maps that the caller has are in memory beside it."""
    linears = [item for item in maps if isinstance(item, PackedLinear)]
    biases = [item.bias for item in linears if item.bias is not None]
    if len(linears) != len(maps) or len(biases) not in (0, len(linears)):
        return None
    weight = packed.stack([item.weight for item in linears])
    return None if weight is None else (weight, torch.stack(biases) if biases else None)
