"""Rotation and the write to the cache in one Triton kernel.

Three programs a token: its query heads, its key heads, its value heads.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.cache.naive import CacheScales
from kernels.rope.naive import Rotation


@triton.jit
def _rotated(row, head, column, inside, stride, table, position, ROPE: tl.constexpr):
    """Heads of the token at row, turned, float32 [HEADS, WIDTH]; see rope.naive.rotate."""
    cos, sin = table
    half: tl.constexpr = ROPE // 2
    at = row + head * stride
    value = tl.load(at + column, mask=inside, other=0.0).to(tl.float32)
    rotated = inside & (column < ROPE)
    partner = tl.where(column < half, column + half, column - half)
    other = tl.load(at + partner, mask=rotated, other=0.0).to(tl.float32)
    angle = position * half + column % half
    cosine = tl.load(cos + angle, mask=column < ROPE, other=1.0)
    sine = tl.load(sin + angle, mask=column < ROPE, other=0.0)
    return value * cosine + tl.where(column < half, -other, other) * sine


@triton.jit
def _write(value, cache, scales, slot, head, column, inside, HEADS, WIDTH, LIMIT: tl.constexpr):
    """Write one token's heads to the cache; LIMIT > 0: divided by a scale a head, written too."""
    if LIMIT > 0:
        scale = tl.maximum(tl.max(tl.abs(value), axis=1) / LIMIT, 1e-12)[:, None]
        value = value / scale
        tl.store(scales + slot * HEADS + head, scale, mask=head < HEADS)
        value = tl.minimum(tl.maximum(value, -LIMIT), LIMIT)
    if cache.dtype.element_ty == tl.int8:
        value = tl.floor(value + 0.5)
    elif LIMIT == 0 and cache.dtype.element_ty == tl.float8e4nv:
        value = tl.minimum(tl.maximum(value, -448.0), 448.0)
    at = (slot * HEADS + head) * WIDTH + column
    tl.store(cache + at, value.to(cache.dtype.element_ty), mask=inside)


@triton.jit
def _rotate_and_store_kernel(
    query, key, value, cos, sin, positions, slots, out, key_cache, value_cache,
    key_scales, value_scales, query_stride, query_head, key_stride, key_head,
    value_stride, value_head, HEADS, KEY_HEADS, WIDTH, LIMIT: tl.constexpr,
    ROPE: tl.constexpr, BLOCK_HEADS: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    column = tl.arange(0, BLOCK_WIDTH)[None, :]
    position = tl.load(positions + token)
    slot = tl.load(slots + token)
    heads = tl.where(part == 0, HEADS, KEY_HEADS)
    inside = (head < heads) & (column < WIDTH)
    table = (cos, sin)
    if part == 0:
        row = query + token * query_stride
        rotated = _rotated(row, head, column, inside, query_head, table, position, ROPE)
        at = (token * HEADS + head) * WIDTH + column
        tl.store(out + at, rotated.to(out.dtype.element_ty), mask=inside)
    elif slot >= 0:
        if part == 1:
            row = key + token * key_stride
            rotated = _rotated(row, head, column, inside, key_head, table, position, ROPE)
            rotated = rotated.to(key.dtype.element_ty).to(tl.float32)
            _write(rotated, key_cache, key_scales, slot, head, column, inside, KEY_HEADS, WIDTH,
                   LIMIT)  # fmt: skip
        else:
            at = token * value_stride + head * value_head + column
            plain = tl.load(value + at, mask=inside, other=0.0).to(tl.float32)
            _write(plain, value_cache, value_scales, slot, head, column, inside, KEY_HEADS, WIDTH,
                   LIMIT)  # fmt: skip


def rotate_and_store(
    rows: tuple[Tensor, Tensor, Tensor],
    rotation: Rotation,
    caches: tuple[Tensor, Tensor],
    slots: Tensor,
    scales: CacheScales | None = None,
) -> Tensor:
    """See kernels.rope.naive."""
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in rows)
    tokens, heads, width = query.shape
    out = torch.empty((tokens, heads, width), dtype=query.dtype, device=query.device)
    if tokens == 0:
        return out
    limit = 0.0
    if scales is not None:
        limit = 127.0 if caches[0].dtype == torch.int8 else 448.0
    _rotate_and_store_kernel[(tokens, 3)](
        query, key, value, rotation.cos, rotation.sin, rotation.positions, slots, out, *caches,
        scales and scales.keys, scales and scales.values,
        *query.stride()[:2], *key.stride()[:2], *value.stride()[:2],
        heads, key.shape[1], width,
        LIMIT=limit,
        ROPE=2 * rotation.cos.shape[1],
        BLOCK_HEADS=triton.next_power_of_2(max(heads, key.shape[1])),
        BLOCK_WIDTH=triton.next_power_of_2(width),
    )  # fmt: skip
    return out
