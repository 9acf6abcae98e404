"""Attention over the paged cache: its meaning against the definition, the kernels against it."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels.attention_spec import AttentionSpec
from kernels.decode import naive as decode
from kernels.decode import triton as decode_kernel
from kernels.prefill import naive as prefill
from kernels.prefill import triton as prefill_kernel
from tests.kernels.paging import Heads, attend, paged, quantized
from tests.kernels.tolerances import EXACT_ENOUGH, apart, assert_near, few, normal

SIX_HEADS = torch.tensor([-2.0, 0.0, 0.5, 1.0, 2.0, 5.0])
SPECS = (
    AttentionSpec(0.2),
    AttentionSpec(0.2, window=30),
    AttentionSpec(0.2, softcap=2.0),
    AttentionSpec(0.2, sinks=SIX_HEADS),
    AttentionSpec(0.2, 50, 3.0, SIX_HEADS),
)
BOTH_WAYS = (AttentionSpec(0.2, causal=False), AttentionSpec(0.2, window=9, causal=False))
LAYER = Heads(key_heads=2, group=3, width=24)


def int32(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


@pytest.mark.parametrize("spec", SPECS)
def test_decode_is_the_definition(spec: AttentionSpec) -> None:
    cache, query = paged(LAYER, 3, 16, torch.float32), normal(3, 6, 24)
    lengths = int32(1, 0, 71)
    got = decode.decode_attention(query, cache.caches, cache.tables, lengths, spec)
    for row, length in enumerate(lengths.tolist()):
        expected = attend(query[row : row + 1], *cache.context(row, length), spec)[0]
        assert_near(got[row], expected if length else torch.zeros(6, 24))


@pytest.mark.parametrize("spec", [*SPECS, *BOTH_WAYS])
def test_prefill_after_a_cached_prefix_is_the_definition(spec: AttentionSpec) -> None:
    cache, query = paged(LAYER, 4, 16, torch.float32), normal(16, 6, 24)
    starts, lengths = int32(0, 1, 1, 8, 16), int32(1, 0, 40, 8)
    got = prefill.prefill_attention(query, cache.caches, cache.tables, starts, lengths, spec)
    for row, (start, end) in enumerate(pairwise(starts.tolist())):
        context = cache.context(row, int(lengths[row]))
        assert_near(got[start:end], attend(query[start:end], *context, spec))


@pytest.mark.parametrize("spec", [SPECS[0], *BOTH_WAYS])
def test_attention_without_a_cache_keeps_sequences_apart(spec: AttentionSpec) -> None:
    query, key, value = normal(20, 6, 24), normal(20, 2, 24, seed=1), normal(20, 2, 24, seed=2)
    starts = int32(0, 3, 3, 20)
    got = prefill.attention(query, key, value, starts, spec)
    for start, end in pairwise(starts.tolist()):
        rows = slice(start, end)
        assert_near(got[rows], attend(query[rows], key[rows], value[rows], spec))
    assert_near(prefill_kernel.attention(apart(query), apart(key), value, starts, spec), got)


def test_softcapped_scores_taken_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, query, key = AttentionSpec(0.2, softcap=2.0), normal(30, 6, 24), normal(30, 2, 24)
    whole = prefill.attend_sequence(query, key, key, spec)
    monkeypatch.setattr(prefill, "_SCORES_AT_ONCE", 1000)
    assert_near(prefill.attend_sequence(query, key, key, spec), whole)


shapes = st.builds(
    Heads, st.integers(1, 3), st.integers(1, 7), st.sampled_from((16, 24, 64, 80, 160))
)


@few
@given(
    shapes,
    st.lists(st.integers(0, 200), max_size=4),
    st.sampled_from((16, 32, 256)),
    st.sampled_from(EXACT_ENOUGH),
    st.sampled_from((None, 1, 3)),
    st.sampled_from((None, 1, 40)),
)
def test_the_decode_kernel_matches_for_any_shape(
    heads: Heads,
    lengths: list[int],
    size: int,
    dtype: torch.dtype,
    splits: int | None,
    window: int | None,
) -> None:
    cache = paged(heads, len(lengths), size, dtype)
    query = normal(len(lengths), heads.key_heads * heads.group, heads.width, dtype=dtype)
    spec = AttentionSpec(0.2, window)
    expected = decode.decode_attention(query, cache.caches, cache.tables, int32(*lengths), spec)
    got = decode_kernel.decode_attention(
        apart(query), cache.caches, cache.tables, int32(*lengths), spec, splits=splits
    )
    assert_near(got, expected)


@few
@given(
    shapes,
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 100)), max_size=4),
    st.sampled_from((16, 32, 256)),
    st.sampled_from(EXACT_ENOUGH),
    st.sampled_from((None, 1, 40)),
)
def test_the_prefill_kernel_matches_for_any_shape(
    heads: Heads,
    sequences: list[tuple[int, int]],
    size: int,
    dtype: torch.dtype,
    window: int | None,
) -> None:
    tokens = [new for new, _ in sequences]
    starts = torch.tensor([0, *tokens]).cumsum(0).int()
    lengths = int32(*(new + cached for new, cached in sequences))
    cache, spec = paged(heads, len(sequences), size, dtype), AttentionSpec(0.2, window)
    query = normal(sum(tokens), heads.key_heads * heads.group, heads.width, dtype=dtype)
    arguments = (cache.caches, cache.tables, starts, lengths, spec)
    expected = prefill.prefill_attention(query, *arguments)
    assert_near(prefill_kernel.prefill_attention(apart(query), *arguments), expected)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("splits", [1, 4])
def test_the_decode_kernel_matches_for_any_masking(spec: AttentionSpec, splits: int) -> None:
    cache, query = paged(LAYER, 3, 16, torch.float32), normal(3, 6, 24)
    arguments = (cache.caches, cache.tables, int32(1, 0, 171), spec)
    expected = decode.decode_attention(query, *arguments)
    got = decode_kernel.decode_attention(query, *arguments, splits=splits)
    assert_near(got, expected)


@pytest.mark.parametrize("spec", [*SPECS, *BOTH_WAYS])
def test_the_prefill_kernel_matches_for_any_masking(spec: AttentionSpec) -> None:
    cache, query = paged(LAYER, 3, 16, torch.float32), normal(130, 6, 24)
    starts, lengths = int32(0, 1, 101, 130), int32(150, 100, 60)
    arguments = (cache.caches, cache.tables, starts, lengths, spec)
    expected = prefill.prefill_attention(query, *arguments)
    assert_near(prefill_kernel.prefill_attention(query, *arguments), expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantized_caches_are_read_with_their_scales(dtype: torch.dtype) -> None:
    plain, query, spec = (
        paged(LAYER, 2, 16, torch.float32),
        normal(40, 6, 24),
        AttentionSpec(0.2),
    )
    cache, starts, lengths = quantized(plain, dtype), int32(0, 7, 40), int32(90, 33)
    arguments = (cache.tables, starts, lengths, spec)
    got = prefill.prefill_attention(query, cache.caches, *arguments, cache.scales)
    assert_near(got[:7], attend(query[:7], *cache.context(0, 90), spec))
    assert_near(
        prefill_kernel.prefill_attention(query, cache.caches, *arguments, cache.scales), got
    )
    token = decode.decode_attention(
        query[[6, 39]], cache.caches, cache.tables, lengths, spec, cache.scales
    )
    assert_near(token, got[[6, 39]])
    assert_near(
        decode_kernel.decode_attention(
            query[[6, 39]], cache.caches, cache.tables, lengths, spec, cache.scales
        ),
        token,
    )
    exact = prefill.prefill_attention(query, plain.caches, *arguments)
    assert (got - exact).abs().mean() < 0.05
