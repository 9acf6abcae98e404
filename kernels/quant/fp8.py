"""FP8 (e4m3) weights with scales: one for the tensor, one a row, or one a block of 128 x 128."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from kernels.quant.packed import PackedWeight

BLOCK = 128
MAX_E4M3 = 448.0


@dataclass(frozen=True, slots=True)
class Fp8Weight(PackedWeight):
    """weight float8_e4m3fn [N, C]; scale of the tensor, of its rows, or of blocks of 128 x 128."""

    weight: Tensor
    scale: Tensor

    def dense(self, dtype: torch.dtype) -> Tensor:
        return dequantize(self.weight, self.scale, dtype)

    def normalized(self, *, concatenated: bool) -> Self | None:
        rows = len(self.weight)
        if not per_block(self.weight, self.scale):
            return replace(self, scale=self.scale.float().reshape(-1, 1).expand(rows, 1))
        return None if concatenated and rows % BLOCK else self  # a block would lie across two parts


def dequantize(weight: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """weight float8_e4m3fn [N, C] times scale: [] or [1], [N] or [N, 1], or [ceil(N / 128),
    ceil(C / 128)]; in dtype."""
    return (weight.float() * broadcast_scale(weight, scale)).to(dtype)


def broadcast_scale(weight: Tensor, scale: Tensor) -> Tensor:
    """scale so that it broadcasts over weight [N, C], float32."""
    scale, (rows, columns) = scale.float(), weight.shape
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    if per_block(weight, scale):
        repeated = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        return repeated[:rows, :columns]
    return scale.reshape(rows, 1)


def per_row(weight: Tensor, scale: Tensor) -> bool:
    """Whether scale has one number for each row of weight."""
    return scale.shape in ((len(weight),), (len(weight), 1))


def per_block(weight: Tensor, scale: Tensor) -> bool:
    """Whether scale has one number for each block of 128 x 128 of weight."""
    return scale.ndim == 2 and scale.numel() > 1 and not per_row(weight, scale)


def quantize_tokens(x: Tensor) -> tuple[Tensor, Tensor]:
    """(x / scale as float8_e4m3fn [T, C], scale float32 [T, 1]), the scale from each token's
    largest magnitude."""
    wide = x.float()
    scale = (wide.abs().amax(dim=-1, keepdim=True) / MAX_E4M3).clamp_min(1e-12)
    return (wide / scale).to(torch.float8_e4m3fn), scale


def scaled_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """x [..., C] times the weights [N, C], transposed, plus bias [N]; each token of x is quantized
    too. torch._scaled_mm wants a CUDA device of compute capability 8.9 or up, and scales of the
    tensor or of its rows."""
    tokens, of_tokens = quantize_tokens(x.flatten(0, -2))
    of_rows = scale.float().reshape(1, -1).expand(1, len(weight)).contiguous()
    out = torch._scaled_mm(
        tokens, weight.t(), scale_a=of_tokens, scale_b=of_rows, out_dtype=torch.bfloat16
    )
    out = out.to(x.dtype).view(*x.shape[:-1], len(weight))
    return out if bias is None else out + bias
