"""Attention of many query tokens as a Triton kernel: FlashAttention-2 over the paged cache.

A program has BLOCK_ROWS rows of one sequence and one key head: consecutive tokens, each with all
the query heads of that key head. Sequences of any length lie one after the other; a program finds
its own by binary search. Without a cache, keys and values lie like the queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention_spec import AttentionSpec
from kernels.cache.naive import CacheScales
from kernels.online_softmax import LOG2_E, accumulate, cache_rows, load_rows, scale_scores
from kernels.segments import segment_of

_TILE = 64
_ROWS = 128


@triton.jit
def _hidden(scores, token, position, length, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """Scores [M, N] with -inf where the query at position [M] does not see token [N]."""
    seen = token[None, :] < length
    if CAUSAL:
        seen = seen & (token[None, :] <= position[:, None])
    if WINDOWED:
        seen = seen & (token[None, :] > position[:, None] - window)
        if not CAUSAL:
            seen = seen & (token[None, :] < position[:, None] + window)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _tiles(
    state, packed, place, scale_place, table, bounds, position, length, scale, softcap, window,
    PAGED: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, CAPPED: tl.constexpr,
    WINDOWED: tl.constexpr, CAUSAL: tl.constexpr, SCALED: tl.constexpr, MASKED: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take the tiles between bounds into state; MASKED: some of their tokens are hidden."""
    keys, key_stride, values, value_stride, first_row = place
    key_scales, value_scales, scale_stride = scale_place
    begin, end = bounds
    for tile in range(begin, end, TILE):
        token = tile + tl.arange(0, TILE)
        inside = token < length
        row = first_row + token
        if PAGED:
            row = cache_rows(table, token, inside, SIZE)
        key = load_rows(keys, row, inside, key_stride, WIDTH, BLOCK)
        value = load_rows(values, row, inside, value_stride, WIDTH, BLOCK)
        products = tl.dot(packed, tl.trans(key.to(packed.dtype)), input_precision="ieee")
        factors = inside
        if SCALED:
            at = row * scale_stride
            products *= tl.load(key_scales + at, mask=inside, other=0.0)[None, :]
            factors = tl.load(value_scales + at, mask=inside, other=0.0)
        scores = scale_scores(products, scale, softcap, CAPPED)
        if MASKED:
            scores = _hidden(scores, token, position, length, window, CAUSAL, WINDOWED)
        state = accumulate(state, scores, value.to(packed.dtype), factors, SCALED)
    return state


@triton.jit
def _prefill_kernel(
    query, keys, values, key_scales, value_scales, tables, starts, lengths, out, sinks, sequences,
    scale, softcap, window, query_stride, query_head, key_stride, key_head_stride, value_stride,
    value_head_stride, scale_stride, table_stride, HEADS, GROUP: tl.constexpr,
    WIDTH: tl.constexpr, SIZE: tl.constexpr, PAGED: tl.constexpr, CAPPED: tl.constexpr,
    WINDOWED: tl.constexpr, CAUSAL: tl.constexpr, SCALED: tl.constexpr, SINKS: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    key_head = tl.program_id(1)
    sequence, first_block = segment_of(block, starts, sequences, TOKENS)
    start = tl.load(starts + sequence).to(tl.int64)
    tokens = tl.load(starts + sequence + 1) - start.to(tl.int32)
    first = (block - first_block) * TOKENS
    if first >= tokens:
        return
    length = tl.load(lengths + sequence) if PAGED else tokens
    member = tl.arange(0, ROWS)
    token = first + member // GROUP
    position = length - tokens + token
    head = key_head * GROUP + member % GROUP
    column = tl.arange(0, BLOCK)[None, :]
    real = ((member < TOKENS * GROUP) & (token < tokens))[:, None] & (column < WIDTH)
    row = start + token
    at = row[:, None] * query_stride + head[:, None] * query_head + column
    packed = tl.load(query + at, mask=real, other=0.0)
    state = (
        tl.zeros([ROWS, BLOCK], dtype=tl.float32),
        tl.full([ROWS], float("-inf"), dtype=tl.float32),
        tl.zeros([ROWS], dtype=tl.float32),
    )
    low = 0
    high = length
    lowest = length - tokens + first
    if WINDOWED:
        low = tl.maximum(lowest - window + 1, 0) // TILE * TILE
    if CAUSAL:
        high = tl.minimum(lowest + TOKENS, length)
    elif WINDOWED:
        high = tl.minimum(lowest + TOKENS + window - 1, length)
    # Tiles that every row sees whole need no mask: those before the first row's own position.
    whole = low
    if not WINDOWED:
        whole = (tl.minimum(lowest + 1, length) if CAUSAL else length) // TILE * TILE
    place = (
        keys + key_head * key_head_stride, key_stride,
        values + key_head * value_head_stride, value_stride, start,
    )  # fmt: skip
    scale_place = (key_scales, value_scales, scale_stride)
    if SCALED:
        scale_place = (key_scales + key_head, value_scales + key_head, scale_stride)
    table = tables + sequence * table_stride if PAGED else tables
    state = _tiles(
        state, packed, place, scale_place, table, (low, whole), position, length, scale, softcap,
        window, PAGED, SIZE, WIDTH, CAPPED, WINDOWED, CAUSAL, SCALED, False, TILE, BLOCK,
    )  # fmt: skip
    state = _tiles(
        state, packed, place, scale_place, table, (whole, high), position, length, scale, softcap,
        window, PAGED, SIZE, WIDTH, CAPPED, WINDOWED, CAUSAL, SCALED, True, TILE, BLOCK,
    )  # fmt: skip
    total, peak, weight = state
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * LOG2_E
        base = tl.maximum(peak, sink)
        shrink = tl.exp2(peak - base)
        weight = weight * shrink + tl.exp2(sink - base)
        total = total * shrink[:, None]
    total = total / tl.where(weight == 0, 1.0, weight)[:, None]
    at = (row * HEADS)[:, None] * WIDTH + head[:, None] * WIDTH + column
    tl.store(out + at, total.to(out.dtype.element_ty), mask=real)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where keys and values are: in rows of a cache, by tables and lengths, or like queries."""

    keys: Tensor
    values: Tensor
    tables: Tensor | None
    lengths: Tensor | None
    scales: CacheScales | None


def prefill_attention(
    query: Tensor,
    caches: tuple[Tensor, Tensor],
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    spec: AttentionSpec,
    scales: CacheScales | None = None,
) -> Tensor:
    """See kernels.prefill.naive."""
    source = _Source(*caches, block_tables, context_lengths, scales)
    return _launch(query, source, query_starts, spec)


def attention(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, spec: AttentionSpec
) -> Tensor:
    """See kernels.prefill.naive."""
    key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (key, value))
    return _launch(query, _Source(key, value, None, None, None), starts, spec)


def _launch(query: Tensor, source: _Source, starts: Tensor, spec: AttentionSpec) -> Tensor:
    query = query if query.stride(-1) == 1 else query.contiguous()
    tokens, heads, width = query.shape
    out = torch.empty((tokens, heads, width), dtype=query.dtype, device=query.device)
    sequences, key_heads = len(starts) - 1, source.keys.shape[-2]
    group = heads // key_heads
    rows = max(_rows(tokens, sequences, group, width), triton.next_power_of_2(group))
    at_once = rows // group
    if tokens == 0:
        return out
    _prefill_kernel[(tokens // at_once + sequences, key_heads)](
        query, source.keys, source.values, source.scales and source.scales.keys,
        source.scales and source.scales.values, source.tables, starts, source.lengths, out,
        spec.sinks, sequences, spec.scale, spec.softcap or 0.0, spec.window or 0,
        *query.stride()[:2], *source.keys.stride()[-3:-1], *source.values.stride()[-3:-1],
        key_heads, 0 if source.tables is None else source.tables.stride(0), heads,
        GROUP=group,
        WIDTH=width,
        SIZE=1 if source.tables is None else source.keys.shape[1],
        PAGED=source.tables is not None,
        CAPPED=spec.softcap is not None,
        WINDOWED=spec.window is not None,
        CAUSAL=spec.causal,
        SCALED=source.scales is not None,
        SINKS=spec.sinks is not None,
        ROWS=rows,
        TOKENS=at_once,
        TILE=_TILE if width <= 128 else _TILE // 2,
        BLOCK=max(16, triton.next_power_of_2(width)),
        num_warps=8 if rows >= _ROWS else 4,
        num_stages=3 if width <= 128 else 2,
    )  # fmt: skip
    return out


def _rows(tokens: int, sequences: int, group: int, width: int) -> int:
    """Fewer rows a program where the sequences have few tokens, or heads are wide."""
    mean = triton.next_power_of_2(max(1, tokens // max(1, sequences)) * group)
    return max(16, min(int(mean), _ROWS if width <= 128 else _ROWS // 2))
