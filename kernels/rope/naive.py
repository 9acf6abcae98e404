"""What rotation and the write to the cache mean, in PyTorch; the CPU path."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.cache.naive import CacheScales

Factors = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Rotation:
    """Where the angles come from: cos, sin float32 [P, R / 2] and positions int64 [T]. The first R
    of D dimensions are turned, half-split."""

    cos: Tensor
    sin: Tensor
    positions: Tensor


def rotate_and_store(
    rows: tuple[Tensor, Tensor, Tensor],
    rotation: Rotation,
    caches: tuple[Tensor, Tensor],
    slots: Tensor,
    scales: CacheScales | None = None,
) -> Tensor:
    """The query turned to its positions [T, H, D]; key and value [T, K, D], the key turned too,
    are written to the caches [blocks, B, K, D]. rows: query, key, value.

    slots int64 [T]: block * B + offset, -1 for a token that is not stored. Caches of int8 want
    scales, those of float8_e4m3fn take them: they are written here.
    """
    query, key, value = rows
    cos = rotation.cos.index_select(0, rotation.positions)
    sin = rotation.sin.index_select(0, rotation.positions)
    factors = rotation_factors(cos, sin)
    key = rotate(key, factors)
    kept = slots >= 0
    if not bool(kept.all()):
        key, value, slots = key[kept], value[kept], slots[kept]
    store(key, caches[0], slots, scales and scales.keys)
    store(value, caches[1], slots, scales and scales.values)
    return rotate(query, factors)


def rotation_factors(cos: Tensor, sin: Tensor) -> Factors:
    """What rotate multiplies by, float32 [T, 1, R], of cos and sin [T, R / 2]: (cos, cos) and
    (-sin, sin)."""
    return torch.cat((cos, cos), dim=-1)[:, None], torch.cat((-sin, sin), dim=-1)[:, None]


def rotate(x: Tensor, factors: Factors) -> Tensor:
    """x [T, H, D] rotated: dimension i pairs with i + R / 2 (the half-split of GPT-NeoX);
    dimensions from R on stay. Computed in float32, in few operations: at one token their number
    decides on a CPU."""
    cos, sin = factors
    width = cos.shape[-1]
    whole = width == x.shape[-1]
    part = (x if whole else x[..., :width]).float()
    rotated = torch.addcmul(part * cos, part.roll(width // 2, -1), sin).to(x.dtype)
    return rotated if whole else torch.cat((rotated, x[..., width:]), dim=-1)


def store(rows: Tensor, cache: Tensor, slots: Tensor, scales: Tensor | None = None) -> None:
    """Write rows [T, K, D] to cache [blocks, B, K, D] at slots [T] = block * B + offset. Of a
    quantized cache, each row's scale goes to scales [blocks, B, K]."""
    flat = cache.view(-1, *cache.shape[2:])
    if scales is not None:
        rows, of_rows = quantize_rows(rows, cache.dtype)
        scales.view(-1, scales.shape[-1]).index_copy_(0, slots, of_rows)
    elif cache.dtype == torch.float8_e4m3fn:
        rows = rows.float().clamp(-448, 448)
    rows = rows.to(cache.dtype)
    if cache.dtype == torch.float8_e4m3fn:  # index_copy_ is not implemented for float8
        flat, rows = flat.view(torch.uint8), rows.view(torch.uint8)
    flat.index_copy_(0, slots, rows)


def quantize_rows(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(rows / scale in dtype, int8 or float8_e4m3fn; scale float32 [T, K]): a scale for each
    token and head, such that the largest magnitude becomes the largest of the dtype."""
    limit = 127.0 if dtype == torch.int8 else 448.0
    wide = rows.float()
    scale = (wide.abs().amax(dim=-1) / limit).clamp_min(1e-12)
    scaled = (wide / scale[..., None]).clamp(-limit, limit)
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), scale
