"""The attention of one step: where its keys and values go in the cache, and what each token sees.

Owns the layout of the cache tensors ([blocks, block_size, heads, head_dim], one pair a layer) and
the index tensors of a step. Knows nothing of sequences' ids or of which blocks are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels import ops

Tensor = Any


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Keys and values of one layer over the whole pool [blocks, block_size, heads, head_dim]."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class RopeTables:
    """Cosines and sines [positions, width / 2], already scaled by the attention factor."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True)
class Attending:
    """How one layer attends. window: how many of the last tokens it sees, None: all."""

    scale: float
    rope: RopeTables
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


@dataclass(frozen=True, slots=True)
class AttentionStep:
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
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: Attending
    ) -> Tensor:
        """Turn query [T, H, D] and key [T, K, D], store key and value [T, K, D], and attend:
        [T, H, D]."""
        cache, rope = self.caches[layer], how.rope
        query = ops.rotate_and_store(
            query,
            key,
            value,
            rope.cos,
            rope.sin,
            self.positions,
            cache.keys,
            cache.values,
            self.slots,
        )
        count = self.decodes
        if count == len(self.context_lengths):
            return self._decode(cache, query, how)
        if count == 0:
            return self._prefill(cache, query, how)
        parts = self._decode(cache, query[:count], how), self._prefill(cache, query[count:], how)
        return torch.cat(parts)

    def _decode(self, cache: LayerCache, query: Tensor, how: Attending) -> Tensor:
        count = self.decodes
        return ops.decode_attention(
            query,
            cache.keys,
            cache.values,
            self.block_tables[:count],
            self.context_lengths[:count],
            scale=how.scale,
            window=how.window,
            softcap=how.softcap,
            sinks=how.sinks,
        )

    def _prefill(self, cache: LayerCache, query: Tensor, how: Attending) -> Tensor:
        count = self.decodes
        return ops.prefill_attention(
            query,
            cache.keys,
            cache.values,
            self.block_tables[count:],
            self.query_starts[count:] - count,
            self.context_lengths[count:],
            scale=how.scale,
            window=how.window,
            softcap=how.softcap,
            sinks=how.sinks,
        )


def make_caches(
    layers: int, shape: tuple[int, int, int, int], dtype: Any, device: Any
) -> list[LayerCache]:
    """Zeroed caches of shape [blocks, block_size, heads, head_dim]: a page that nobody has
    written may be read behind a mask, where a NaN would spoil the sum."""
    return [
        LayerCache(
            torch.zeros(shape, dtype=dtype, device=device),
            torch.zeros(shape, dtype=dtype, device=device),
        )
        for _ in range(layers)
    ]
