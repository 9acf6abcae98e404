"""Matrix products of block formats: the compiled kernel against the gguf package's reading."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import native
from kernels.native.matmul import MatmulLibrary

LIBRARY = native.library_path("llamacpp")
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="no kernels were compiled here")

EXACT = 1e-5  # what adding in another order may change, of the sum of the products' sizes
# Where the scales of a format lie in a block, which random bytes would make infinite
SCALES: dict[str, tuple[int, ...]] = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "MXFP4": (),
}
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def products() -> MatmulLibrary:
    assert LIBRARY is not None
    return MatmulLibrary(LIBRARY)


def kind_of(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name]


def block_of(name: str) -> int:
    return int(gguf.GGML_QUANT_SIZES[kind_of(name)][0])


def packed(random: np.random.Generator, name: str, rows: int, blocks: int) -> Bytes:
    """Rows of random blocks with scales of every size that a model has."""
    size = gguf.GGML_QUANT_SIZES[kind_of(name)][1]
    raw: Any = random.integers(0, 256, (rows, blocks, size), np.uint8)
    for offset in SCALES[name]:
        halves = random.uniform(0.001, 0.1, (rows, blocks, 1)).astype(np.float16)
        raw[..., offset : offset + 2] = halves.view(np.uint8)
    if name == "MXFP4":
        raw[..., 0] = random.integers(120, 130, (rows, blocks))
    return np.ascontiguousarray(raw.reshape(rows, -1))


def values(name: str, weights: Bytes) -> Floats:
    return np.asarray(gguf.dequantize(weights, kind_of(name)), np.float32)


def assert_product(found: Floats, x: Floats, weights: Floats) -> None:
    """x @ weights.T, but for the rounding of x: to 127 steps of the largest of 32 values."""
    largest = np.abs(x).reshape(len(x), -1, 32).max(axis=2)
    rounding = np.repeat(largest / 254, 32, axis=1)
    bound = (rounding * (1 + EXACT) + np.abs(x) * EXACT) @ np.abs(weights).T
    assert (np.abs(found - x @ weights.T) <= bound).all()


@pytest.mark.parametrize("name", SCALES)
@given(
    rows=st.integers(1, 70),
    blocks=st.integers(1, 6),
    columns=st.integers(1, 20),
    threads=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_a_product_is_that_of_the_values(
    name: str, rows: int, blocks: int, columns: int, threads: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weights = packed(random, name, rows, blocks)
    x = random.standard_normal((columns, blocks * block_of(name)), np.float32)
    found = products().multiply(kind_of(name), [weights], [x], threads=threads)[0]
    assert_product(found, x, values(name, weights))


def test_more_columns_than_pass_over_a_panel_at_once() -> None:
    random = np.random.default_rng(0)
    weights = packed(random, "Q4_K", 33, 5)  # more values in a row than are unpacked at once, too
    x = random.standard_normal((1030, 1280), np.float32)
    found = products().multiply(kind_of("Q4_K"), [weights], [x], threads=2)[0]
    assert_product(found, x, values("Q4_K", weights))


@pytest.mark.parametrize("name", ["Q8_0", "Q6_K"])
def test_groups_have_matrices_and_columns_of_their_own(name: str) -> None:
    random = np.random.default_rng(1)
    weights = [packed(random, name, 48, 2) for _ in range(5)]
    k = 2 * block_of(name)
    x = [random.standard_normal((columns, k), np.float32) for columns in (1, 9, 0, 8, 3)]
    found = products().multiply(kind_of(name), weights, x, threads=2)
    for own, matrix, result in zip(x, weights, found, strict=True):
        if len(own):
            assert_product(result, own, values(name, matrix))


def test_matrices_of_other_heights_share_their_columns() -> None:
    random = np.random.default_rng(4)
    weights = [packed(random, "Q4_0", rows, 3) for rows in (70, 16, 33)]
    x = random.standard_normal((5, 96), np.float32)
    for matrix, result in zip(
        weights, products().multiply(kind_of("Q4_0"), weights, [x], threads=2), strict=True
    ):
        assert_product(result, x, values("Q4_0", matrix))


@pytest.mark.parametrize("name", ["Q8_0", "Q4_K", "Q6_K"])
def test_a_column_has_the_same_bits_alone_and_with_others(name: str) -> None:
    random = np.random.default_rng(6)
    weights = [packed(random, name, 100, 5)]
    x = random.standard_normal((43, 5 * block_of(name)), np.float32)
    together = products().multiply(kind_of(name), weights, [x], threads=3)[0]
    for column in (0, 7, 8, 42):
        own = x[column : column + 1]
        alone = products().multiply(kind_of(name), weights, [own], threads=2)[0]
        assert np.array_equal(alone[0], together[column])


def test_a_column_of_zeros_gives_zeros_and_nan_stays_in_its_column() -> None:
    random = np.random.default_rng(2)
    weights = packed(random, "Q8_0", 40, 4)
    x = random.standard_normal((3, 128), np.float32)
    x[0] = 0
    x[1, 77] = np.nan
    found = products().multiply(kind_of("Q8_0"), [weights], [x])[0]
    assert (found[0] == 0).all()
    assert np.isnan(found[1]).all()
    assert_product(found[2:], x[2:], values("Q8_0", weights))


def test_one_thread_and_several_give_the_same_bits() -> None:
    random = np.random.default_rng(3)
    weights = packed(random, "Q5_K", 200, 3)
    x = random.standard_normal((11, 768), np.float32)
    one, three = (
        products().multiply(kind_of("Q5_K"), [weights], [x], threads=threads)[0]
        for threads in (1, 3)
    )
    assert np.array_equal(one, three)


@pytest.mark.parametrize(("kind", "k"), [(0, 64), (1, 64), (8, 48), (12, 128), (16, 256), (8, 0)])
def test_other_formats_and_broken_rows_are_refused(kind: int, k: int) -> None:
    assert not products().takes(kind, k)
    with pytest.raises(ValueError, match=f"rows of {k} values of ggml type {kind}"):
        products().multiply(kind, [np.zeros((1, 64), np.uint8)], [np.zeros((1, k), np.float32)])
