"""What rotation and the write to the cache mean, in PyTorch; the CPU path."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.cache.naive import CacheScales


@dataclass(frozen=True, slots=True)
class Rotation:
    """Where the angles come from: cos, sin float32 [P, R / 2] and positions int64 [T]."""

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
    """The turned query; rows: query [T, H, D], key and value [T, K, D]; see kernels.ops."""
    query, key, value = rows
    cos = rotation.cos.index_select(0, rotation.positions)
    sin = rotation.sin.index_select(0, rotation.positions)
    turns = torch.cat((cos, cos), dim=-1)[:, None], torch.cat((-sin, sin), dim=-1)[:, None]
    key = _turned(key, turns)
    kept = slots >= 0
    if not bool(kept.all()):
        key, value, slots = key[kept], value[kept], slots[kept]
    store(key, caches[0], slots, scales and scales.keys)
    store(value, caches[1], slots, scales and scales.values)
    return _turned(query, turns)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, H, D] turned by cos and sin [T, R / 2]: dimension i pairs with i + R / 2 (the
    half-split of GPT-NeoX); dimensions from R on stay. Computed in float32."""
    return _turned(x, (torch.cat((cos, cos), -1)[:, None], torch.cat((-sin, sin), -1)[:, None]))


def _turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """rotate by turns (cos twice, -sin and sin) [T, 1, R], in few operations: at one token their
    number decides on a CPU (37 µs for 46)."""
    width = turns[0].shape[-1]
    part = x[..., :width].float()
    first, second = part.chunk(2, dim=-1)
    turned = torch.addcmul(part * turns[0], torch.cat((second, first), dim=-1), turns[1])
    turned = turned.to(x.dtype)
    return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), dim=-1)


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
