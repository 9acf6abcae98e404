"""The attention of a step on a CPU: what kernels.ops gives on the same cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.backend import Capacity, Row
from runner.backends.torch.attention.block_pool import BlockPool
from runner.backends.torch.attention.cpu import CpuAttentionStep, cache_views, sequence_extents
from runner.backends.torch.attention.paged import (
    AttentionConfig,
    PagedAttentionStep,
    RopeTables,
    create_caches,
)
from runner.backends.torch.batch import StepBatch, create_inputs, create_layout
from tests.properties import examples

Tensor = Any
BLOCK, HEADS, KEY_HEADS, WIDTH, BLOCKS, LONGEST = 4, 4, 2, 8, 64, 48
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class Part:
    """A sequence of a step: tokens in the cache before, tokens of the step."""

    held: int
    new: int


parts = st.builds(Part, held=st.integers(0, 30), new=st.sampled_from([1, 1, 1, 2, 7]))


def pool_of(sequences: list[Part], *, scattered: bool) -> BlockPool:
    """A pool that holds what the sequences had before the step."""
    pool = BlockPool(BLOCKS, BLOCK, 5, LONGEST)

    def extend(sequence: int, count: int) -> None:
        if count:
            pool.extend(np.array([sequence]), np.array([count]))

    for sequence, part in enumerate(sequences):
        extend(sequence, part.held // 2 if scattered else part.held)
    if scattered:  # growing in turns takes blocks apart
        most = max(part.held for part in sequences)
        for at in range(most):
            for sequence, part in enumerate(sequences):
                extend(sequence, int(part.held // 2 + at < part.held))
    return pool


@examples(13)
@given(
    sequences=st.lists(parts, min_size=1, max_size=5),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    window=st.sampled_from([None, 1, 3, 9]),
    softcap=st.sampled_from([None, 5.0]),
    sinks=st.booleans(),
    turned=st.sampled_from([WIDTH, WIDTH // 2]),
    scattered=st.booleans(),
    seed=st.integers(0, 9),
)
def test_it_is_what_the_operations_give(
    sequences: list[Part],
    dtype: torch.dtype,
    window: int | None,
    softcap: float | None,
    sinks: bool,
    turned: int,
    scattered: bool,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    pool = pool_of(sequences, scattered=scattered)
    capacity = Capacity(BLOCKS * BLOCK, 5, LONGEST, 64, 100, 1, partial_share=True)
    rows = [Row(at, [1] * part.new, part.held) for at, part in enumerate(sequences)]
    layout = create_layout(rows, capacity, pool.lengths)
    pool.extend(layout.sequences, layout.counts)
    total = sum(part.new for part in sequences)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    angles = torch.randn(LONGEST, turned // 2, generator=generator)
    how = AttentionConfig(
        0.3,
        window,
        softcap,
        torch.randn(HEADS, generator=generator) if sinks else None,
        rope=RopeTables(angles.cos(), angles.sin()),
    )
    query, key, value = (normal(total, heads, WIDTH) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
    caches = create_caches(1, (BLOCKS, BLOCK, KEY_HEADS, WIDTH), dtype, "cpu")
    for cache in caches:
        cache.keys.copy_(normal(*cache.keys.shape))
        cache.values.copy_(normal(*cache.values.shape))
    copies = create_caches(1, (BLOCKS, BLOCK, KEY_HEADS, WIDTH), dtype, "cpu")
    for cache, copy in zip(caches, copies, strict=True):
        copy.keys.copy_(cache.keys)
        copy.values.copy_(cache.values)
    inputs = create_inputs(rows, layout, pool, ())
    found = []
    for given_caches, tables in ((caches, False), (copies, True)):
        _, step = StepBatch(given_caches, BLOCK, "cpu", tables=tables).fill(inputs)
        assert isinstance(step, PagedAttentionStep if tables else CpuAttentionStep)
        found.append(step.attend(0, query, key, value, how))
    assert found[0].shape == (total, HEADS, WIDTH)
    assert torch.allclose(found[0], found[1], atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    assert torch.allclose(caches[0].keys, copies[0].keys, atol=TOLERANCE[dtype])
    assert torch.equal(caches[0].values, copies[0].values)


def test_neighbouring_blocks_are_known_by_their_first_cell() -> None:
    tables = np.array([[3, 4, 9], [3, 5, 6], [7, 0, 0]], np.int32)
    lengths, starts = np.array([8, 12, 2]), np.array([0, 1, 2, 5], np.int32)
    extents = sequence_extents(tables, lengths, starts, 4)
    assert [extent.first for extent in extents] == [12, None, 28]
    assert [extent.rows for extent in extents] == [slice(0, 1), slice(1, 2), slice(2, 5)]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_caches_with_scales_have_no_views(dtype: torch.dtype) -> None:
    from runner.backends.torch.attention.paged import LayerCache

    pages = torch.zeros(2, 4, 1, 8, dtype=dtype)
    assert cache_views([LayerCache(pages, pages)]) is None
