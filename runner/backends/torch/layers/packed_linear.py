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
from runner.backends.torch.layers.linear import ConcatenatedLinear, Linear

Tensor = Any


@dataclass(frozen=True, slots=True)
class PackedLinear(Linear):
    """Weights as the file packs them, and bias [outputs]."""

    weight: PackedWeight
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return ops.linear_packed(x, self.weight, self.bias)


def join_packed(weights: Sequence[PackedWeight], biases: Sequence[Tensor | None]) -> Linear:
    """Maps of the same inputs as one; in one product where they are packed alike."""
    joined = weights[0] if len(weights) == 1 else packed.concatenate(weights)
    if joined is not None:
        given = [bias for bias in biases if bias is not None]
        return PackedLinear(joined, torch.cat(given) if given else None)
    return ConcatenatedLinear([PackedLinear(w, b) for w, b in zip(weights, biases, strict=True)])


def stack_packed(maps: Sequence[Linear]) -> tuple[PackedWeight, Tensor | None] | None:
    """The weights of the experts' maps [E, outputs, inputs] and their biases [E, outputs]. None
    where they are not packed alike. The maps that the caller has are in memory beside it."""
    linears = [item for item in maps if isinstance(item, PackedLinear)]
    biases = [item.bias for item in linears if item.bias is not None]
    if len(linears) != len(maps) or len(biases) not in (0, len(linears)):
        return None
    weight = packed.stack([item.weight for item in linears])
    return None if weight is None else (weight, torch.stack(biases) if biases else None)
