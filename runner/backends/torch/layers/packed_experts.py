"""Packed maps of many experts put together, so that one launch multiplies by all of them.

Knows the formats of packed_linear.py and of kernels.quant.experts, no routing and no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernels.ops import Fp8Experts, GgufExperts, Int4Experts, Int8Experts, PackedExperts
from kernels.quant import fp8
from runner.backends.torch.layers.linear import Linear
from runner.backends.torch.layers.packed_linear import (
    Fp8PackedWeight,
    GgufPackedWeight,
    Int4PackedWeight,
    Int8PackedWeight,
    PackedLinear,
    PackedWeight,
)

Tensor = Any


def stack_packed(maps: Sequence[Linear]) -> tuple[PackedExperts, Tensor | None] | None:
    """The weights of the experts' maps [E, outputs, inputs] and their biases [E, outputs]. None
    where they are not packed alike, and for columns in an order of each expert's own. The maps
    that the caller has are in memory beside it."""
    linears = [item for item in maps if isinstance(item, PackedLinear)]
    if len(linears) != len(maps):
        return None
    parts = [_parts(item.weight) for item in linears]
    biases = [item.bias for item in linears if item.bias is not None]
    first = parts[0]
    if first is None or len(biases) not in (0, len(linears)):
        return None
    alike = [part for part in parts if part is not None and _form(part) == _form(first)]
    if len(alike) != len(parts) or len({_kind(item.weight) for item in linears}) > 1:
        return None
    found = _experts(
        linears[0].weight, [torch.stack(column) for column in zip(*alike, strict=True)]
    )
    return found, torch.stack(biases) if biases else None


def _parts(weight: PackedWeight) -> tuple[Tensor, ...] | None:
    if isinstance(weight, Int4PackedWeight):
        four = weight.weight
        return None if four.order is not None else (four.packed, four.scales, four.zeros)
    if isinstance(weight, Int8PackedWeight):
        return weight.weight, weight.scales.reshape(len(weight.weight), -1)
    if isinstance(weight, Fp8PackedWeight):
        if fp8.per_block(weight.weight, weight.scale):
            return weight.weight, weight.scale
        rows = weight.scale.float().reshape(-1, 1).expand(len(weight.weight), 1)
        return weight.weight, rows
    return (weight.rows,) if isinstance(weight, GgufPackedWeight) else None


def _form(parts: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    return [(part.dtype, *part.shape) for part in parts]


def _kind(weight: PackedWeight) -> tuple[str, str | None]:
    return type(weight).__name__, weight.kind if isinstance(weight, GgufPackedWeight) else None


def _experts(first: PackedWeight, parts: Sequence[Tensor]) -> PackedExperts:
    if isinstance(first, Int4PackedWeight):
        return Int4Experts(*parts)
    if isinstance(first, Int8PackedWeight):
        return Int8Experts(*parts)
    if isinstance(first, GgufPackedWeight):
        return GgufExperts(parts[0], first.kind)
    return Fp8Experts(*parts)
