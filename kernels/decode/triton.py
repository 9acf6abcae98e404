"""Decode attention as Triton kernels: flash-decoding over the paged cache.

A program has one sequence, one key head with all its query heads (GQA-packed) and one of SPLITS
parts of the context; a second kernel joins the parts. The grid depends on shapes only; lengths are
read on the device, so a CUDA graph can be replayed with others.
Source: Dao et al., Flash-Decoding for long-context inference, 2023.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention_spec import AttentionSpec
from kernels.cache.naive import CacheScales
from kernels.online_softmax import LOG2_E, accumulate, cache_rows, load_rows, scale_scores

_TILE = 64
_MAX_SPLITS = 64
# Programs wanted per multiprocessor: two hide each other's waiting for memory.
_WAVES = 2
_MULTIPROCESSORS_OF_H200 = 132


@triton.jit
def _part_kernel(
    query, keys, values, key_scales, value_scales, tables, lengths, parts, peaks, weights, out,
    sinks, scale, softcap, window, query_stride, query_head, row_stride, head_stride, scale_stride,
    table_stride, HEADS, GROUP: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
    SPLITS: tl.constexpr, CAPPED: tl.constexpr, WINDOWED: tl.constexpr, SCALED: tl.constexpr,
    SINKS: tl.constexpr, TILE: tl.constexpr, BLOCK_GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0).to(tl.int64)
    key_head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lengths + sequence)
    start = 0
    if WINDOWED:
        start = tl.maximum(length - window, 0)
    share = tl.cdiv(tl.cdiv(length - start, SPLITS), TILE) * TILE
    first = start + split * share
    last = tl.minimum(first + share, length)
    member = tl.arange(0, BLOCK_GROUP)
    column = tl.arange(0, BLOCK)[None, :]
    head = key_head * GROUP + member
    of_query = (member < GROUP)[:, None] & (column < WIDTH)
    place = query + sequence * query_stride + head[:, None] * query_head + column
    packed = tl.load(place, mask=of_query, other=0.0)
    state = (
        tl.zeros([BLOCK_GROUP, BLOCK], dtype=tl.float32),
        tl.full([BLOCK_GROUP], float("-inf"), dtype=tl.float32),
        tl.zeros([BLOCK_GROUP], dtype=tl.float32),
    )
    for begin in range(first, last, TILE):
        token = begin + tl.arange(0, TILE)
        inside = token < last
        row = cache_rows(tables + sequence * table_stride, token, inside, SIZE)
        key = load_rows(keys + key_head * head_stride, row, inside, row_stride, WIDTH, BLOCK)
        value = load_rows(values + key_head * head_stride, row, inside, row_stride, WIDTH, BLOCK)
        products = tl.dot(packed, tl.trans(key.to(packed.dtype)), input_precision="ieee")
        factors = inside
        if SCALED:
            at = row * scale_stride + key_head
            products *= tl.load(key_scales + at, mask=inside, other=0.0)[None, :]
            factors = tl.load(value_scales + at, mask=inside, other=0.0)
        scores = scale_scores(products, scale, softcap, CAPPED)
        scores = tl.where(inside[None, :], scores, float("-inf"))
        state = accumulate(state, scores, value.to(packed.dtype), factors, SCALED)
    total, peak, weight = state
    real = member < GROUP
    if SPLITS == 1:
        if SINKS:
            sink = tl.load(sinks + head, mask=real, other=0.0).to(tl.float32) * LOG2_E
            base = tl.maximum(peak, sink)
            shrink = tl.exp2(peak - base)
            weight = weight * shrink + tl.exp2(sink - base)
            total = total * shrink[:, None]
        total = total / tl.where(weight == 0, 1.0, weight)[:, None]
        place = out + (sequence * HEADS + head)[:, None] * WIDTH + column
        tl.store(place, total.to(out.dtype.element_ty), mask=of_query)
    else:
        part = (sequence * HEADS + head) * SPLITS + split
        tl.store(parts + part[:, None] * WIDTH + column, total, mask=of_query)
        tl.store(peaks + part, peak, mask=real)
        tl.store(weights + part, weight, mask=real)


@triton.jit
def _join_kernel(
    parts, peaks, weights, sinks, out, HEADS, WIDTH: tl.constexpr, SPLITS: tl.constexpr,
    SINKS: tl.constexpr, BLOCK_SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, BLOCK_SPLITS)
    column = tl.arange(0, BLOCK)[None, :]
    real = split < SPLITS
    at = row * SPLITS + split
    peak = tl.load(peaks + at, mask=real, other=float("-inf"))
    weight = tl.load(weights + at, mask=real, other=0.0)
    base = tl.max(peak, axis=0)
    if SINKS:
        sink = tl.load(sinks + row % HEADS).to(tl.float32) * LOG2_E
        base = tl.maximum(base, sink)
    base = tl.where(base == float("-inf"), 0.0, base)
    shrink = tl.exp2(peak - base)
    whole = tl.sum(weight * shrink, axis=0)
    if SINKS:
        whole += tl.exp2(sink - base)
    inside = real[:, None] & (column < WIDTH)
    part = tl.load(parts + at[:, None] * WIDTH + column, mask=inside, other=0.0)
    total = tl.sum(part * shrink[:, None], axis=0)[None, :] / tl.where(whole == 0, 1.0, whole)
    tl.store(out + row * WIDTH + column, total.to(out.dtype.element_ty), mask=column < WIDTH)


def decode_attention(
    query: Tensor,
    caches: tuple[Tensor, Tensor],
    block_tables: Tensor,
    context_lengths: Tensor,
    spec: AttentionSpec,
    scales: CacheScales | None = None,
    splits: int | None = None,
) -> Tensor:
    """See naive.py; splits: into how many parts contexts are cut, None: by the shapes."""
    query = query if query.stride(-1) == 1 else query.contiguous()
    sequences, heads, width = query.shape
    size, key_heads = caches[0].shape[1:3]
    out = torch.empty((sequences, heads, width), dtype=query.dtype, device=query.device)
    if sequences == 0:
        return out
    splits = splits or _splits(query, key_heads, size * block_tables.shape[1])
    parts, peaks, weights = _partials(out, splits)
    block = max(16, triton.next_power_of_2(width))
    _part_kernel[(sequences, key_heads, splits)](
        query, *caches, scales and scales.keys, scales and scales.values, block_tables,
        context_lengths, parts, peaks, weights, out, spec.sinks, spec.scale,
        spec.softcap or 0.0, spec.window or 0, *query.stride()[:2], *caches[0].stride()[1:3],
        key_heads, block_tables.stride(0), heads,
        GROUP=heads // key_heads,
        WIDTH=width,
        SIZE=size,
        SPLITS=splits,
        CAPPED=spec.softcap is not None,
        WINDOWED=spec.window is not None,
        SCALED=scales is not None,
        SINKS=spec.sinks is not None,
        TILE=_TILE if width <= 128 else _TILE // 2,
        BLOCK_GROUP=max(16, triton.next_power_of_2(heads // key_heads)),
        BLOCK=block,
        num_stages=3,
    )  # fmt: skip
    if splits > 1:
        _join_kernel[(sequences * heads,)](
            parts, peaks, weights, spec.sinks, out, heads,
            WIDTH=width,
            SPLITS=splits,
            SINKS=spec.sinks is not None,
            BLOCK_SPLITS=triton.next_power_of_2(splits),
            BLOCK=block,
        )  # fmt: skip
    return out


def _splits(query: Tensor, key_heads: int, max_context: int) -> int:
    """As many parts as fill the device, none shorter than two tiles at the longest context."""
    processors = _MULTIPROCESSORS_OF_H200
    if query.is_cuda:
        processors = torch.cuda.get_device_properties(query.device).multi_processor_count
    wanted = -(-_WAVES * processors // (query.shape[0] * key_heads))
    return int(max(1, min(wanted, max_context // (2 * _TILE), _MAX_SPLITS)))


def _partials(out: Tensor, splits: int) -> tuple[Tensor, Tensor, Tensor]:
    if splits == 1:
        return out, out, out
    shape = (*out.shape[:2], splits)
    parts = torch.empty((*shape, out.shape[2]), dtype=torch.float32, device=out.device)
    return parts, parts.new_empty(shape), parts.new_empty(shape)
