"""Matrix products of block formats, F16 and BF16: the compiled kernel against the gguf package's
reading."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGML_QUANT_SIZES, dequantize
from gguf import GGMLQuantizationType as GgmlType
from hypothesis import given
from hypothesis import strategies as st

from kernels import native
from kernels.native.matmul import MatmulLibrary

LIBRARY = native.library_path("llamacpp")
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="no kernels were compiled here")

EXACT = 1e-5  # what adding in another order may change, of the sum of the products' sizes
K_MULTIPLE = 256  # of every format's block size
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def products() -> MatmulLibrary:
    assert LIBRARY is not None
    return MatmulLibrary(LIBRARY)


FLOATS = (GgmlType.F16, GgmlType.BF16)
TYPES = [
    each
    for each in GgmlType
    if each not in FLOATS and LIBRARY and products().supports(each, K_MULTIPLE)
]


@cache
def random_blocks(ggml_type: GgmlType) -> Bytes:
    """[500, block_bytes]: random bytes, but for blocks whose scales are unlike a model's."""
    size, wanted = GGML_QUANT_SIZES[ggml_type][1], 500
    random, found = np.random.default_rng(0), np.empty((0, size), np.uint8)
    while len(found) < wanted:
        raw = random.integers(0, 256, (20 * wanted, size), np.uint8)
        with np.errstate(all="ignore"):
            largest = np.abs(dequantize(raw, ggml_type)).max(axis=1)
        found = np.concatenate([found, raw[(largest > 0.05) & (largest < 5)]])
    return found[:wanted]


def packed(random: np.random.Generator, ggml_type: GgmlType, rows: int, blocks: int) -> Bytes:
    """Rows of random blocks."""
    chosen = random.choice(random_blocks(ggml_type), (rows, blocks))
    return np.ascontiguousarray(chosen.reshape(rows, -1))


def block_size(ggml_type: GgmlType) -> int:
    return int(GGML_QUANT_SIZES[ggml_type][0])


def values(ggml_type: GgmlType, weights: Bytes) -> Floats:
    return np.asarray(dequantize(weights, ggml_type), np.float32)


def assert_product(found: Floats, x: Floats, weights: Floats) -> None:
    """x @ weights.T, but for the rounding of x: to 127 steps of the largest of 32 values."""
    largest = np.abs(x).reshape(len(x), -1, 32).max(axis=2)
    rounding = np.repeat(largest / 254, 32, axis=1)
    bound = (rounding * (1 + EXACT) + np.abs(x) * EXACT) @ np.abs(weights).T
    assert (np.abs(found - x @ weights.T) <= bound).all()


def float_weights(random: np.random.Generator, ggml_type: GgmlType, rows: int, k: int) -> Bytes:
    """Rows of k numbers of deviation 1."""
    numbers = random.standard_normal((rows, k), np.float32)
    if ggml_type == GgmlType.F16:
        return numbers.astype(np.float16).view(np.uint8)
    return np.ascontiguousarray((numbers.view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)


@pytest.mark.parametrize("ggml_type", FLOATS, ids=lambda each: each.name)
@given(
    rows=st.integers(1, 70),
    k=st.one_of(st.integers(1, 40), st.integers(1, 1100)),
    columns=st.integers(1, 20),
    threads=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_a_product_of_floats_is_that_of_the_values(
    ggml_type: GgmlType, rows: int, k: int, columns: int, threads: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weights = float_weights(random, ggml_type, rows, k)
    x = random.standard_normal((columns, k), np.float32)
    found = products().multiply(ggml_type, [weights], [x], threads=threads)[0]
    numbers = values(ggml_type, weights)
    # with BF16 weights x may be rounded to that
    rounding = EXACT + (2**-8 if ggml_type == GgmlType.BF16 else 0)
    bound = np.abs(x) @ np.abs(numbers).T * rounding
    assert (np.abs(found - x @ numbers.T) <= bound).all()


@pytest.mark.parametrize("ggml_type", FLOATS, ids=lambda each: each.name)
@pytest.mark.parametrize("k", [1024, 1057])
def test_a_product_of_floats_has_the_same_bits_alone_and_with_others(
    ggml_type: GgmlType, k: int
) -> None:
    random = np.random.default_rng(7)
    weights = [float_weights(random, ggml_type, 101, k)]
    x = random.standard_normal((43, k), np.float32)
    x[5, 3] = np.nan
    together = products().multiply(ggml_type, weights, [x], threads=3)[0]
    assert np.isnan(together[5]).all()
    for first, count in ((0, 1), (7, 1), (42, 1), (0, 2), (6, 5), (0, 5), (9, 17)):
        own = x[first : first + count]
        fewer = products().multiply(ggml_type, weights, [own], threads=2)[0]
        assert np.array_equal(fewer, together[first : first + count])
    other_rows = products().multiply(ggml_type, [weights[0][50:]], [x[:9]])[0]
    assert np.array_equal(other_rows[:5], together[:5, 50:])


def test_the_formats_of_common_models_are_supported() -> None:
    assert len(TYPES) >= 12
    assert {GgmlType.Q4_0, GgmlType.Q8_0, GgmlType.Q4_K, GgmlType.Q6_K} <= set(TYPES)


@pytest.mark.parametrize("ggml_type", TYPES, ids=lambda each: each.name)
@given(
    rows=st.integers(1, 70),
    blocks=st.integers(1, 6),
    columns=st.integers(1, 20),
    threads=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_a_product_is_that_of_the_values(
    ggml_type: GgmlType, rows: int, blocks: int, columns: int, threads: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weights = packed(random, ggml_type, rows, blocks)
    x = random.standard_normal((columns, blocks * block_size(ggml_type)), np.float32)
    found = products().multiply(ggml_type, [weights], [x], threads=threads)[0]
    assert_product(found, x, values(ggml_type, weights))


def test_more_columns_than_pass_over_a_panel_at_once() -> None:
    random = np.random.default_rng(0)
    weights = packed(
        random, GgmlType.Q4_K, 33, 5
    )  # more values in a row than are unpacked at once, too
    x = random.standard_normal((1030, 1280), np.float32)
    found = products().multiply(GgmlType.Q4_K, [weights], [x], threads=2)[0]
    assert_product(found, x, values(GgmlType.Q4_K, weights))


@pytest.mark.parametrize("ggml_type", [GgmlType.Q8_0, GgmlType.Q6_K], ids=lambda each: each.name)
def test_groups_have_matrices_and_columns_of_their_own(ggml_type: GgmlType) -> None:
    random = np.random.default_rng(1)
    weights = [packed(random, ggml_type, 48, 2) for _ in range(5)]
    k = 2 * block_size(ggml_type)
    x = [random.standard_normal((columns, k), np.float32) for columns in (1, 9, 0, 70, 3)]
    found = products().multiply(ggml_type, weights, x, threads=2)
    for own, matrix, result in zip(x, weights, found, strict=True):
        if len(own):
            assert_product(result, own, values(ggml_type, matrix))


def test_matrices_of_other_heights_share_their_columns() -> None:
    random = np.random.default_rng(4)
    weights = [packed(random, GgmlType.Q4_0, rows, 3) for rows in (70, 16, 33)]
    x = random.standard_normal((5, 96), np.float32)
    for matrix, result in zip(
        weights, products().multiply(GgmlType.Q4_0, weights, [x], threads=2), strict=True
    ):
        assert_product(result, x, values(GgmlType.Q4_0, matrix))


@pytest.mark.parametrize(
    "ggml_type",
    [GgmlType.Q8_0, GgmlType.Q4_0, GgmlType.IQ4_NL, GgmlType.Q4_K, GgmlType.Q6_K],
    ids=lambda each: each.name,
)
def test_a_column_has_the_same_bits_alone_and_with_others(ggml_type: GgmlType) -> None:
    random = np.random.default_rng(6)
    weights = [packed(random, ggml_type, 100, 5)]
    x = random.standard_normal((93, 5 * block_size(ggml_type)), np.float32)
    together = products().multiply(ggml_type, weights, [x], threads=3)[0]
    for column in (0, 7, 8, 42, 80, 92):
        own = x[column : column + 1]
        alone = products().multiply(ggml_type, weights, [own], threads=2)[0]
        assert np.array_equal(alone[0], together[column])
    for first, count in ((0, 43), (20, 64), (11, 65)):
        own = x[first : first + count]
        fewer = products().multiply(ggml_type, weights, [own], threads=1)[0]
        assert np.array_equal(fewer, together[first : first + count])


def test_a_column_of_zeros_gives_zeros_and_nan_stays_in_its_column() -> None:
    random = np.random.default_rng(2)
    weights = packed(random, GgmlType.Q8_0, 40, 4)
    x = random.standard_normal((3, 128), np.float32)
    x[0] = 0
    x[1, 77] = np.nan
    found = products().multiply(GgmlType.Q8_0, [weights], [x])[0]
    assert (found[0] == 0).all()
    assert np.isnan(found[1]).all()
    assert_product(found[2:], x[2:], values(GgmlType.Q8_0, weights))


def test_one_thread_and_several_give_the_same_bits() -> None:
    random = np.random.default_rng(3)
    weights = packed(random, GgmlType.Q5_K, 200, 3)
    x = random.standard_normal((11, 768), np.float32)
    one, three = (
        products().multiply(GgmlType.Q5_K, [weights], [x], threads=threads)[0] for threads in (1, 3)
    )
    assert np.array_equal(one, three)


@pytest.mark.parametrize(
    ("ggml_type", "k"),
    [
        (GgmlType.F32, 64),
        (GgmlType.F16, 0),
        (GgmlType.Q8_0, 48),
        (GgmlType.Q4_K, 128),
        (GgmlType.IQ2_XXS, 256),
        (GgmlType.Q8_0, 0),
    ],
)
def test_other_formats_and_broken_rows_are_refused(ggml_type: int, k: int) -> None:
    assert not products().supports(ggml_type, k)
    with pytest.raises(ValueError, match=f"rows of {k} values of ggml type {ggml_type:d}"):
        products().multiply(
            ggml_type, [np.zeros((1, 64), np.uint8)], [np.zeros((1, k), np.float32)]
        )


@pytest.mark.parametrize("ggml_type", TYPES)
@pytest.mark.parametrize("columns", [1, 5, 70])
def test_fine_products_round_inputs_to_16_bits(ggml_type: GgmlType, columns: int) -> None:
    random = np.random.default_rng(columns)
    weights = packed(random, ggml_type, 70, 512 // block_size(ggml_type))
    x = random.standard_normal((columns, 512), np.float32)
    (found,) = products().multiply(ggml_type, [weights], [x], threads=2, fine=True)
    w = values(ggml_type, weights)
    bound = (np.abs(x) * EXACT + np.abs(x).max() / 254**2) @ np.abs(w).T
    assert (np.abs(found - x @ w.T) <= bound).all()
    (alone,) = products().multiply(ggml_type, [weights], [x[:1]], fine=True)
    assert (alone == found[:1]).all()
