"""Linear maps on a CPU by hearth's own kernels, which multiply weights where and as they lie.

Nothing is put into another layout, so that a file's pages are the weights. Knows no names of
checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kernels.native.linear import F8, I4, I8, Matrices, TorchKernels, torch_kernels
from kernels.quant import fp8
from kernels.quant.fp8 import Fp8Weight
from kernels.quant.int4 import Int4Weight
from kernels.quant.int8 import Int8Weight
from kernels.quant.packed import PackedWeight
from runner.backends.torch.layers.linear import Linear

Tensor = Any
_COMPUTED = (torch.float32, torch.bfloat16)
_GROUP = 64  # weights in a block of I4


class WeightRows(NamedTuple):
    """The weights of a map [outputs, inputs], or [outputs, elements of a row] of a kind of
    kernels.native.linear; scales float32 [outputs]: what their products are multiplied by."""

    weight: Tensor
    kind: str | None = None
    scales: Tensor | None = None


@dataclass(frozen=True, slots=True)
class NativeLinear(Linear):
    """bias [outputs]; scales [outputs]: what products are multiplied by. narrow: inputs and weights
    may be rounded to bfloat16. dtype: of the outputs, None: that of the inputs."""

    matrices: Matrices
    bias: Tensor | None = None
    narrow: bool = False
    dtype: Any = None
    scales: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        dtype = self.dtype or x.dtype
        if self.scales is not None:
            wide = self.matrices.multiply(x, dtype=torch.float32, allow_bf16=self.narrow)
            out = wide.mul_(self.scales).to(dtype)
        else:
            out = self.matrices.multiply(x, dtype=dtype, allow_bf16=self.narrow)
        return out if self.bias is None else out.add_(self.bias)


def native_kernels(dtype: Any, device: Any) -> TorchKernels | None:
    """Those that compute in dtype on the device; None: there are none."""
    return torch_kernels() if device.type == "cpu" and dtype in _COMPUTED else None


def native_linear(
    found: TorchKernels,
    parts: Sequence[WeightRows],
    bias: Tensor | None = None,
    *,
    narrow: bool = False,
) -> NativeLinear:
    """Maps of the same inputs as one. Raises ValueError as create_matrices does."""
    scales = None
    if any(part.scales is not None for part in parts):
        given = (torch.ones(len(p.weight)) if p.scales is None else p.scales for p in parts)
        scales = torch.cat(list(given))
    return NativeLinear(create_matrices(found, parts), bias, narrow, scales=scales)


def packed_rows(weight: PackedWeight) -> WeightRows | None:
    """Packed weights as the kernels multiply them; None: they do not."""
    match weight:
        case Int8Weight(values, scales) if scales.numel() == len(values):
            return WeightRows(values, I8, scales.float().flatten())
        case Fp8Weight(values, scale) if fp8.per_row(values, scale):
            return WeightRows(values, F8, scale.float().flatten())
        case Int4Weight(packed, order=None) if weight.group % _GROUP == 0:
            return WeightRows(_int4_blocks(weight, packed), I4)
    return None


def _int4_blocks(weight: Int4Weight, packed: Tensor) -> Tensor:
    """uint8 [N, bytes of a row]: blocks of a scale and a minimum in float16 and 32 bytes, see
    I4Row in kernels/native/types.h."""
    rows, repeats = len(packed), weight.group // _GROUP
    scales = weight.scales.float()
    minima = -weight.zeros.float() * scales
    pairs = torch.stack((scales, minima), -1).half().repeat_interleave(repeats, 1)
    # Halves of 32 neighbours: what is 16 apart shares a byte there, neighbours do in packed.
    numbers = torch.stack((packed & 15, packed >> 4), -1).view(rows, -1, 2, 2, 16)
    halves = numbers[..., 0, :] | (numbers[..., 1, :] << 4)
    blocks = torch.cat((pairs.view(torch.uint8), halves.flatten(2)), -1)
    return blocks.flatten(1)


def create_matrices(found: TorchKernels, parts: Sequence[WeightRows]) -> Matrices:
    """Maps of the same inputs as one. Raises ValueError for weights that are not multiplied so."""
    return Matrices(found, [part.weight for part in parts], [part.kind for part in parts])
