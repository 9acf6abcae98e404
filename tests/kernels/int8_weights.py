"""Weights of int8 made of floats, as checkpoints hold them."""

from __future__ import annotations

import torch
from torch import Tensor


def quantize(weight: Tensor, group: int | None = None) -> tuple[Tensor, Tensor]:
    """(int8 [N, C], scales float32 [N, 1] or [N, C / group]) of weight [N, C], symmetric."""
    wide = weight.float().unflatten(1, (-1, group or weight.shape[1]))
    scales = (wide.abs().amax(dim=-1) / 127).clamp_min(1e-12)
    return (wide / scales[..., None]).round().to(torch.int8).flatten(1), scales
