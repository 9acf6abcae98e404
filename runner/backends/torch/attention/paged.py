"""The attention of one step: where its keys and values go in the cache, and what each token sees.

Owns the layout of the cache tensors ([blocks, block_size, heads, head_dim], one pair a layer) and
the index tensors of a step. Knows nothing of sequences' ids or of which blocks are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernels import ops
from kernels.ops import AttentionSpec, CacheScales

Tensor = Any
SCALED_DTYPES = (torch.int8, torch.float8_e4m3fn)  # the types of a cache that needs scales


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Keys and values of one layer over the whole pool [blocks, block_size, heads, head_dim].
    scales: of a cache in int8 or float8."""

    keys: Tensor
    values: Tensor
    scales: CacheScales | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that a block has a part of, each [blocks, block_size, heads, ...]; float8 as the
        bytes that it is, which all of torch's copies know."""
        own = tuple(
            part.view(torch.uint8) if part.dtype == torch.float8_e4m3fn else part
            for part in (self.keys, self.values)
        )
        return own if self.scales is None else (*own, self.scales.keys, self.scales.values)


@dataclass(frozen=True, slots=True)
class RopeTables:
    """Cosines and sines [positions, width / 2], already scaled by the attention factor."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig(AttentionSpec):
    """How one layer attends."""

    rope: RopeTables


class AttentionStep(Protocol):
    """The attention's part of one step."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, config: AttentionConfig
    ) -> Tensor:
        """Turn query [T, H, D] and key [T, K, D], store key and value [T, K, D], and attend:
        [T, H, D]."""


@dataclass(frozen=True, slots=True)
class PagedAttentionStep(AttentionStep):
    """The sequences of one step, for all its layers: first those of one token, then the others.

    positions [T] int64; slots [T] int64: the place of each token in the pool, block * block_size
    + offset; block_tables [S, M] int32; query_starts [S + 1] int32: each sequence's first token in
    the step; context_lengths [S] int32: with this step's tokens. decodes: how many have one token.
    """

    caches: Sequence[LayerCache]
    positions: Tensor
    slots: Tensor
    block_tables: Tensor
    query_starts: Tensor
    context_lengths: Tensor
    decodes: int

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, config: AttentionConfig
    ) -> Tensor:
        cache, rope = self.caches[layer], config.rope
        count, pools = self.decodes, (cache.keys, cache.values)
        rotation = ops.Rotation(rope.cos, rope.sin, self.positions)
        query = ops.rotate_and_store((query, key, value), rotation, pools, self.slots, cache.scales)
        parts = []
        if count:
            tables, lengths = self.block_tables[:count], self.context_lengths[:count]
            parts.append(
                ops.decode_attention(query[:count], pools, tables, lengths, config, cache.scales)
            )
        if count < len(self.context_lengths):
            tables, lengths = self.block_tables[count:], self.context_lengths[count:]
            starts = self.query_starts[count:] - count
            parts.append(
                ops.prefill_attention(
                    query[count:], pools, tables, starts, lengths, config, cache.scales
                )
            )
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def create_caches(
    layers: int, shape: tuple[int, int, int, int], dtype: Any, device: Any
) -> list[LayerCache]:
    """Zeroed caches of shape [blocks, block_size, heads, head_dim]: a page that nobody has
    written may be read behind a mask, where a NaN would spoil the sum. Those of int8 and float8
    have a scale for each token and head."""
    scaled = dtype in SCALED_DTYPES

    def zeros(shape: tuple[int, ...], dtype: Any) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    def scales() -> CacheScales:
        return CacheScales(zeros(shape[:3], torch.float32), zeros(shape[:3], torch.float32))

    return [
        LayerCache(zeros(shape, dtype), zeros(shape, dtype), scales() if scaled else None)
        for _ in range(layers)
    ]
