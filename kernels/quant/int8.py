"""W8A16: weights of int8 with a scale for each row, or for each group of a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from kernels.quant.packed import PackedWeight

# Up to so many tokens torch's own kernel for int8 weights is faster than converting them: 42 µs for
# 290 at one token and 3,072 x 1,024 weights on two cores, 161 for 319 at eight; slower at 64.
_FEW = 16


@dataclass(frozen=True, slots=True)
class Int8Weight(PackedWeight):
    """weight int8 [N, C], scales [N], [N, 1] or [N, groups]."""

    weight: Tensor
    scales: Tensor

    def dense(self, dtype: torch.dtype) -> Tensor:
        return dequantize(self.weight, self.scales, dtype)

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return linear(x, self.weight, self.scales, bias)

    def normalized(self, *, concatenated: bool) -> Self:
        return replace(self, scales=self.scales.reshape(len(self.weight), -1))


def dequantize(weight: Tensor, scales: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The weights [N, C] in dtype; scales [N], [N, 1] or [N, groups]."""
    scales = scales.view(len(weight), -1)
    wide = weight.float().unflatten(1, (scales.shape[1], -1)) * scales.float()[..., None]
    return wide.flatten(1).to(dtype)


def linear(x: Tensor, weight: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """x [..., C] times the weights [N, C], transposed, plus bias [N]."""
    if scales.numel() != len(weight):
        return functional.linear(x, dequantize(weight, scales, x.dtype), bias)
    if _fits_torch(x, weight):
        flat = x.reshape(-1, x.shape[-1]).contiguous()
        product = torch.ops.aten._weight_int8pack_mm(
            flat, weight.contiguous(), scales.flatten().to(x.dtype)
        )
        product = product.view(*x.shape[:-1], len(weight))
        return product if bias is None else product + bias
    # One scale a row can wait until after the product.
    product = functional.linear(x, weight.to(x.dtype)) * scales.flatten().to(x.dtype)
    return product if bias is None else product + bias


def _fits_torch(x: Tensor, weight: Tensor) -> bool:
    """Whether torch's kernel may be used, and is fast. It reads 16 columns at a time and does not
    look for the end: widths of 65, 72 and 100 crash the process."""
    if x.device.type != "cpu" or x.dtype != torch.bfloat16 or weight.shape[1] % 16:
        return False
    return bool(0 < x.numel() <= _FEW * x.shape[-1])
