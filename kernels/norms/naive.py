"""What the norms mean, in PyTorch; the CPU path. Knows nothing of models.

Every norm is computed in float32 and rounded once, at the end.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """x [..., N] / sqrt(mean(x²) + eps) * (weight [N] + offset), in x's dtype.

    Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
    """
    if x.dtype == torch.float32 and weight.dtype == torch.float32:
        scale = weight if offset == 0 else weight + offset
        return functional.rms_norm(x, weight.shape, scale, eps)
    wide = x.float()
    scale = weight.float() if offset == 0 else weight.float() + offset
    return functional.rms_norm(wide, weight.shape, scale, eps).to(x.dtype)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """(the norm of x + residual, x + residual rounded to x's dtype), both [..., N]."""
    total = x + residual
    return rms_norm(total, weight, eps, offset), total


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """(x [..., N] - mean) / sqrt(variance + eps) * weight [N] + bias [N], in x's dtype."""
    wide_bias = None if bias is None else bias.float()
    return functional.layer_norm(x.float(), weight.shape, weight.float(), wide_bias, eps).to(
        x.dtype
    )
