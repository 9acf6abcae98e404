"""MXFP4 weights: 32 four-bit floats (E2M1) and one power of two (E8M0) a block.

blocks uint8 [..., C / 32, 16], the first weight in the low nibble; scales uint8 [..., C / 32], the
exponent plus 127: the layout of gpt-oss checkpoints. Source: OCP Microscaling Formats, 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.quant.packed import PackedWeight

_POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
VALUES = (*_POSITIVE, *(-value for value in _POSITIVE))


@dataclass(frozen=True, slots=True)
class Mxfp4Weight(PackedWeight):
    """blocks uint8 [N, C / 32, 16], scales uint8 [N, C / 32]."""

    blocks: Tensor
    scales: Tensor

    def dense(self, dtype: torch.dtype) -> Tensor:
        return dequantize(self.blocks, self.scales, dtype)


def dequantize(blocks: Tensor, scales: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The weights [..., C] in dtype."""
    table = torch.tensor(VALUES, device=blocks.device)
    nibbles = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)
    # The byte is the exponent of a float32 as it is stored there.
    powers = (scales.to(torch.int32) << 23).view(torch.float32)[..., None]
    return (table[nibbles.long()] * powers).flatten(-2).to(dtype)
