"""The attention of one step on a CPU, where the number of operations decides.

What is the same in all layers is found out once a step: the angles of its positions, and where
each sequence lies in the cache. The numbers are those of kernels.ops on the same tensors. Caches
in types that need scales are not its matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kernels import ops
from kernels.attention_spec import AttentionSpec
from kernels.cache.naive import read_cache
from kernels.decode.naive import attend_token
from kernels.prefill.naive import attend_sequence
from kernels.rope.naive import rotate, rotation_factors
from runner.backends.torch.attention.paged import (
    SCALED_DTYPES,
    AttentionConfig,
    AttentionStep,
    LayerCache,
    RopeTables,
)

Tensor = Any


@dataclass(frozen=True, slots=True)
class CacheViews:
    """A layer's cache as it is written to, [cells, heads, head_dim], and as one token reads it,
    [1, heads, cells, head_dim]."""

    cache: LayerCache
    flat: tuple[Tensor, Tensor]
    heads_first: tuple[Tensor, Tensor]


def cache_views(caches: Sequence[LayerCache]) -> list[CacheViews] | None:
    """The views of all layers; None where a cache needs scales or is not read on a CPU."""
    found = []
    for cache in caches:
        keys = cache.keys
        if keys.device.type != "cpu" or keys.dtype in SCALED_DTYPES or ops.uses_triton(keys):
            return None
        keys, values = keys.flatten(0, 1), cache.values.flatten(0, 1)
        heads_first = keys.transpose(0, 1)[None], values.transpose(0, 1)[None]
        found.append(CacheViews(cache, (keys, values), heads_first))
    return found


class SequenceExtent(NamedTuple):
    """Where the context of one sequence lies. first: its first cell where its blocks follow one
    another; rows: of the step."""

    rows: slice
    length: int
    first: int | None
    blocks: NDArray[np.int32]


def sequence_extents(
    tables: NDArray[np.int32], lengths: NDArray[np.int64], starts: NDArray[np.int32], size: int
) -> list[SequenceExtent]:
    """Of the sequences with tables [S, M], lengths [S] and rows starts [S + 1]."""
    places = np.arange(tables.shape[1])
    used = places < -(-lengths[:, None] // size)
    together = ((tables == tables[:, :1] + places) | ~used).all(axis=1).tolist()
    firsts, edges = (tables[:, 0] * size).tolist(), starts.tolist()
    return [
        SequenceExtent(
            slice(edges[at], edges[at + 1]), length, first if whole else None, tables[at]
        )
        for at, (length, first, whole) in enumerate(
            zip(lengths.tolist(), firsts, together, strict=True)
        )
    ]


@dataclass(frozen=True, slots=True)
class CpuAttentionStep(AttentionStep):
    """positions, slots int64 [T]. tables [S, M], lengths [S] and rows starts [S + 1] of its
    sequences, in the order of their rows."""

    layers: Sequence[CacheViews]
    positions: Tensor
    slots: Tensor
    tables: NDArray[np.int32]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int32]
    _extents: list[SequenceExtent] = field(default_factory=list)
    _factors: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, config: AttentionConfig
    ) -> Tensor:
        views = self.layers[layer]
        factors = self._factors.get(id(config.rope)) or self._rotation_factors(config.rope)
        keys, values = views.flat
        keys.index_copy_(0, self.slots, rotate(key, factors))
        values.index_copy_(0, self.slots, value)
        query = rotate(query, factors)
        if not self._extents:
            size = views.cache.keys.shape[1]
            self._extents.extend(sequence_extents(self.tables, self.lengths, self.starts, size))
        found = [self._sequence(views, query, extent, config) for extent in self._extents]
        return found[0] if len(found) == 1 else torch.cat(found)

    def _rotation_factors(self, rope: RopeTables) -> tuple[Tensor, Tensor]:
        cos, sin = rope.cos[self.positions], rope.sin[self.positions]
        found = self._factors[id(rope)] = rotation_factors(cos, sin)
        return found

    def _sequence(
        self, views: CacheViews, query: Tensor, extent: SequenceExtent, spec: AttentionSpec
    ) -> Tensor:
        rows, length = extent.rows, extent.length
        own = query[rows] if len(self._extents) > 1 else query
        if rows.stop - rows.start == 1:
            return self._token(views, own, extent, spec)
        if extent.first is None:
            size = views.cache.keys.shape[1]
            blocks = extent.blocks[: -(-length // size)].tolist()
            both = (views.cache.keys, views.cache.values)
            key, value = (read_cache(pool, blocks, length, query.dtype, None) for pool in both)
        else:
            key, value = (pool.narrow(0, extent.first, length) for pool in views.flat)
        return attend_sequence(own, key, value, spec)

    def _token(
        self, views: CacheViews, query: Tensor, extent: SequenceExtent, spec: AttentionSpec
    ) -> Tensor:
        """[1, H, D] of one token's query."""
        length = extent.length
        skipped = 0 if spec.window is None else max(0, length - spec.window)
        if extent.first is None:
            size = views.cache.keys.shape[1]
            blocks = extent.blocks[skipped // size : -(-length // size)].tolist()
            offset = skipped % size
            both = (views.cache.keys, views.cache.values)
            key, value = (
                read_cache(pool, blocks, offset + length - skipped, query.dtype, None)[
                    offset:
                ].transpose(0, 1)[None]
                for pool in both
            )
        else:
            start, seen = extent.first + skipped, length - skipped
            key, value = (pool.narrow(2, start, seen) for pool in views.heads_first)
        heads = key.shape[1]
        packed = query.view(1, heads, -1, query.shape[-1])
        return attend_token(packed, key, value, spec).view(query.shape)
