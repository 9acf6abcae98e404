"""Attention on the processor: the compiled kernel against the definition in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType as GgmlType
from hypothesis import given
from hypothesis import strategies as st

from kernels import native
from kernels.native.attention import AttentionLibrary, AttentionParams, CacheTensor

LIBRARY = native.library_path("llamacpp")
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="no kernels were compiled here")

F32, F16, BF16, Q8_0 = GgmlType.F32, GgmlType.F16, GgmlType.BF16, GgmlType.Q8_0
CLOSE = 2e-5  # float32 sums in another order, of values of size 1
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """Sizes of one call."""

    rows: int = 3
    cells: int = 70
    heads: int = 4
    heads_kv: int = 2
    head_dim: int = 64
    v_head_dim: int = 64
    types: tuple[int, int] = (F16, F16)
    threads: int = 1


def attention() -> AttentionLibrary:
    assert LIBRARY is not None
    return AttentionLibrary(LIBRARY)


def to_cache(vectors: Floats, ggml_type: int) -> tuple[CacheTensor, Floats]:
    """The vectors as a cache of this type has them, and what they are worth then."""
    head_dim = vectors.shape[-1]
    if ggml_type == F16:
        half = vectors.astype(np.float16)
        return CacheTensor(half, ggml_type, head_dim), half.astype(np.float32)
    if ggml_type == Q8_0:
        blocks = np.asarray(gguf.quantize(vectors, GgmlType.Q8_0))
        worth = gguf.dequantize(blocks, GgmlType.Q8_0)
        return CacheTensor(blocks, ggml_type, head_dim), np.asarray(worth, np.float32)
    if ggml_type == BF16:
        upper = (vectors.view(np.uint32) >> 16).astype(np.uint16)
        worth = (upper.astype(np.uint32) << 16).view(np.float32)
        return CacheTensor(upper, ggml_type, head_dim), worth
    return CacheTensor(vectors, ggml_type, head_dim), vectors


def slopes(heads: int, max_bias: float) -> Floats:
    """ALiBi's factor of the mask for each head (Press et al. 2021), as GGUF models have it."""
    if max_bias == 0:
        return np.ones(heads, np.float32)
    power = 1 << (heads.bit_length() - 1)
    first, second = 2 ** (-max_bias / power), 2 ** (-max_bias / 2 / power)
    return np.array(
        [first ** (h + 1) if h < power else second ** (2 * (h - power) + 1) for h in range(heads)],
        np.float32,
    )


def defined(q: Floats, k: Floats, v: Floats, scoring: AttentionParams) -> Floats:
    heads, group = q.shape[1], q.shape[1] // k.shape[1]
    scores = np.einsum("rhd,chd->rhc", q, k.repeat(group, axis=1)) * scoring.scale
    if scoring.softcap:
        scores = scoring.softcap * np.tanh(scores)
    if scoring.mask is not None:
        factor = slopes(heads, scoring.max_bias)
        scores = scores + scoring.mask.astype(np.float32)[:, None, :] * factor[None, :, None]
    most = scores.max(axis=2, keepdims=True)
    if scoring.sinks is not None:
        most = np.maximum(most, scoring.sinks[None, :, None])
    most = np.where(np.isinf(most), 0, most)
    weights = np.exp(scores - most)
    total = weights.sum(axis=2, keepdims=True)
    if scoring.sinks is not None:
        total = total + np.exp(scoring.sinks[None, :, None] - most)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.asarray(np.einsum("rhc,chd->rhd", weights, v.repeat(group, axis=1)), np.float32)


def assert_defined(
    case: Case, scoring: AttentionParams, seed: int = 0, close: float = CLOSE
) -> None:
    random = np.random.default_rng(seed)
    q = random.standard_normal((case.rows, case.heads, case.head_dim), np.float32)
    k = random.standard_normal((case.cells, case.heads_kv, case.head_dim), np.float32)
    v = random.standard_normal((case.cells, case.heads_kv, case.v_head_dim), np.float32)
    (cache_k, worth_k), (cache_v, worth_v) = to_cache(k, case.types[0]), to_cache(v, case.types[1])
    found = attention().attend(q, cache_k, cache_v, scoring, threads=case.threads)
    expected = defined(q, worth_k, worth_v, scoring)
    assert np.abs(found - expected).max() < close


def causal(rows: int, cells: int) -> npt.NDArray[np.float16]:
    """Row i sees the cells up to cells - rows + i."""
    seen = np.arange(cells)[None, :] <= np.arange(cells - rows, cells)[:, None]
    return np.where(seen, 0, -np.inf).astype(np.float16)


@given(
    rows=st.integers(1, 40),
    cells=st.integers(1, 200),
    heads_kv=st.integers(1, 3),
    group=st.integers(1, 5),
    head_dim=st.sampled_from([32, 64, 80, 96, 128, 256]),
    threads=st.integers(1, 4),
    seen=st.floats(0, 1),
    seed=st.integers(0, 100),
)
def test_any_mask_and_shape(
    rows: int,
    cells: int,
    heads_kv: int,
    group: int,
    head_dim: int,
    threads: int,
    seen: float,
    seed: int,
) -> None:
    hidden = np.random.default_rng(seed).random((rows, cells)) > seen
    mask = np.where(hidden, -np.inf, 0).astype(np.float16)
    case = Case(rows, cells, group * heads_kv, heads_kv, head_dim, head_dim, threads=threads)
    assert_defined(case, AttentionParams(head_dim**-0.5, mask), seed)


@pytest.mark.parametrize("types", [(F32, F32), (F16, F16), (BF16, BF16), (Q8_0, Q8_0), (Q8_0, F16)])
def test_every_type_of_cache(types: tuple[int, int]) -> None:
    assert_defined(Case(rows=9, types=types), AttentionParams(0.125, causal(9, 70)))


def test_values_may_be_shorter_than_keys() -> None:
    assert_defined(Case(head_dim=192, v_head_dim=128), AttentionParams(0.07, causal(3, 70)))


def test_without_a_mask_everything_is_seen() -> None:
    assert_defined(Case(cells=33), AttentionParams(0.125))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_that_sees_nothing_is_zero(threads: int) -> None:
    mask = causal(3, 300)
    mask[1] = -np.inf
    assert_defined(Case(cells=300, threads=threads), AttentionParams(0.125, mask))


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("heads", [4, 6])
def test_sinks_softcap_and_slopes(threads: int, heads: int) -> None:
    random = np.random.default_rng(5)
    mask = (causal(3, 500).astype(np.float32) - random.random((3, 500)) * 9).astype(np.float16)
    sinks = random.standard_normal(heads).astype(np.float32)
    plain = AttentionParams(0.125, mask)
    case = Case(cells=500, heads=heads, heads_kv=2, threads=threads)
    assert_defined(case, replace(plain, sinks=sinks))
    assert_defined(case, replace(plain, softcap=3.0, scale=0.125 / 3))
    assert_defined(case, replace(plain, max_bias=8.0))
    assert_defined(case, replace(plain, sinks=sinks, softcap=3.0, scale=0.04, max_bias=8.0))


def test_large_scores_do_not_overflow() -> None:
    case = Case(cells=200, types=(F32, F32))  # scores of 1,000, rounded to 1e-4
    assert_defined(case, AttentionParams(40.0, causal(3, 200)), close=1e-3)


@pytest.mark.parametrize("sink", [-200.0, 40.0, 2000.0])
def test_a_sink_far_from_the_scores(sink: float) -> None:
    random = np.random.default_rng(8)
    q = np.zeros((1, 1, 64), np.float32)
    k, v = (random.standard_normal((70, 1, 64), np.float32) for _ in range(2))
    scoring = AttentionParams(1.0, sinks=np.array([sink], np.float32))
    found = attention().attend(q, CacheTensor(k, F32, 64), CacheTensor(v, F32, 64), scoring)[0, 0]
    mean = v.sum(axis=0, dtype=np.float64)[0] / (70 + np.exp(np.float64(min(sink, 700.0))))
    assert np.allclose(found, mean, rtol=1e-5, atol=1e-37)


def test_large_values_of_very_many_cells_do_not_overflow() -> None:
    cells = (1 << 19) + 5
    k, v = np.zeros((cells, 1, 32), np.float16), np.full((cells, 1, 32), 600, np.float16)
    q = np.ones((1, 1, 32), np.float32)
    found = attention().attend(
        q, CacheTensor(k, F16, 32), CacheTensor(v, F16, 32), AttentionParams(1.0)
    )
    assert np.allclose(found, 600)


def test_parts_of_a_long_cache_are_put_together() -> None:
    assert_defined(Case(rows=1, cells=3000, heads_kv=1, threads=8), AttentionParams(0.125))


def test_a_row_has_the_same_bits_alone_with_others_and_wherever_its_cells_lie() -> None:
    random = np.random.default_rng(9)
    q = random.standard_normal((20, 6, 64), np.float32)
    k, v = (random.standard_normal((150, 2, 64), np.float32) for _ in range(2))
    v[33] *= 5000  # is added apart
    mask = causal(20, 150)
    scoring = AttentionParams(0.125, mask)
    together = attention().attend(
        q, CacheTensor(k, F32, 64), CacheTensor(v, F32, 64), scoring, threads=1
    )
    spread = random.choice(700, 150, replace=False)  # in any order
    far_k, far_v = (random.standard_normal((700, 2, 64), np.float32) for _ in range(2))
    far_k[spread], far_v[spread] = k, v
    for row in (0, 7, 19):
        own = np.full((1, 700), -np.inf, np.float16)
        own[0, spread] = mask[row]
        for threads in (1, 2, 8):
            alone = attention().attend(
                q[row : row + 1],
                CacheTensor(far_k, F32, 64),
                CacheTensor(far_v, F32, 64),
                AttentionParams(0.125, own),
                threads=threads,
            )
            assert np.array_equal(alone[0], together[row])


def test_nan_in_a_row_stays_in_it() -> None:
    random = np.random.default_rng(0)
    q = random.standard_normal((3, 2, 64), np.float32)
    q[1] = np.nan
    k, v = (random.standard_normal((40, 2, 64), np.float32) for _ in range(2))
    found = attention().attend(
        q, CacheTensor(k, F32, 64), CacheTensor(v, F32, 64), AttentionParams(0.125)
    )
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize("size", [1e-6, 900.0, 1100.0, 3e4])
def test_small_and_large_values_are_added_exactly_enough(size: float) -> None:
    random = np.random.default_rng(0)
    q, k = (
        random.standard_normal((5, 2, 64), np.float32),
        random.standard_normal((90, 2, 64), np.float32),
    )
    v = random.standard_normal((90, 2, 64), np.float32) * np.float32(size)
    scoring = AttentionParams(0.125, causal(5, 90))
    found = attention().attend(q, CacheTensor(k, F32, 64), CacheTensor(v, F32, 64), scoring)
    assert np.abs(found - defined(q, k, v, scoring)).max() < CLOSE * size + 2.0**-34


@pytest.mark.parametrize("spoiled", [np.nan, np.inf])
def test_cells_that_are_not_finite_spoil_only_the_rows_that_see_them(spoiled: float) -> None:
    random = np.random.default_rng(0)
    q = random.standard_normal((6, 2, 64), np.float32)
    k, v = (random.standard_normal((40, 2, 64), np.float32) for _ in range(2))
    mask = causal(6, 40)
    expected = defined(q, k, v, AttentionParams(0.125, mask))
    k[37], v[37] = spoiled, spoiled  # the first three rows do not see it
    found = attention().attend(
        q, CacheTensor(k, F32, 64), CacheTensor(v, F32, 64), AttentionParams(0.125, mask)
    )
    assert np.abs(found[:3] - expected[:3]).max() < CLOSE
    assert not np.isfinite(found[3:]).any()


@pytest.mark.parametrize(
    ("ggml_type", "head_dim"), [(GgmlType.Q4_0, 64), (F16, 36), (F16, 512), (Q8_0, 80), (F16, 0)]
)
def test_other_types_and_sizes_are_refused(ggml_type: int, head_dim: int) -> None:
    vectors = CacheTensor(np.zeros((1, 1, 1024), np.uint8), ggml_type, head_dim)
    assert not attention().supports(vectors, vectors)
    with pytest.raises(ValueError, match=f"heads of {head_dim} and {head_dim} numbers"):
        attention().attend(np.zeros((1, 1, 64), np.float32), vectors, vectors, AttentionParams(1.0))
