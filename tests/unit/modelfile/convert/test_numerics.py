from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from modelfile.convert.numerics import convert_dtype, dtype_of, from_float32, to_float32

FLOATS = arrays(np.dtype("<f4"), st.integers(1, 8), elements=st.floats(width=32))


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    halves = np.array([0x3F80, 0xC000, 0x7F80], "<u2")
    assert to_float32(halves, "BF16").tolist() == [1.0, -2.0, float("inf")]


def test_bfloat16_rounds_to_the_nearest_even() -> None:
    values = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF], "<u4").view("<f4")
    assert from_float32(values, "BF16").tolist() == [0x3F80, 0x3F82, 0x3F81, 0x3F80]


@given(FLOATS)
def test_bfloat16_is_never_further_than_half_a_step(values: np.ndarray) -> None:
    back = to_float32(from_float32(values, "BF16"), "BF16")
    assert (np.isnan(back) == np.isnan(values)).all()
    finite = np.isfinite(values) & np.isfinite(back)
    tiny = np.float32(2.0**-133)  # the smallest bfloat16 is 2**-133
    allowed = np.abs(values[finite]).astype(np.float64) * 2.0**-8 + tiny
    assert (np.abs(back[finite].astype(np.float64) - values[finite]) <= allowed).all()


@given(arrays(np.dtype("<u2"), st.integers(1, 8)))
def test_bfloat16_survives_float32(halves: np.ndarray) -> None:
    values = to_float32(halves, "BF16")
    usable = ~np.isnan(values)
    assert (convert_dtype(values, "F32", "BF16")[usable] == halves[usable]).all()


@pytest.mark.parametrize("value", [65520.0, -1e30])
def test_a_value_beyond_f16_is_an_error(value: float) -> None:
    with pytest.raises(FloatingPointError):
        convert_dtype(np.array([value], "<f4"), "F32", "F16")


def test_a_value_too_small_for_f16_becomes_zero() -> None:
    assert convert_dtype(np.array([1e-30], "<f4"), "F32", "F16").tolist() == [0.0]


def test_the_same_type_is_not_copied() -> None:
    values = np.zeros(4, "<f2")
    assert convert_dtype(values, "F16", "F16") is values


@pytest.mark.parametrize(("source", "target"), [("BF16", "F16"), ("F16", "BF16")])
def test_the_table_gives_what_the_way_by_float32_gives(source: str, target: str) -> None:
    values = np.arange(1 << 16, dtype="<u2").view(dtype_of(source))
    kept = np.abs(to_float32(values, source)) < 65520
    found = convert_dtype(values[kept], source, target)
    assert (found == from_float32(to_float32(values[kept], source), target)).all()


def test_infinities_of_bfloat16_stay_infinite() -> None:
    values = np.array([0x7F80, 0xFF80, 0x3F80], "<u2")
    assert convert_dtype(values, "BF16", "F16").tolist() == [float("inf"), float("-inf"), 1.0]


def test_a_bfloat16_beyond_f16_is_an_error() -> None:
    with pytest.raises(FloatingPointError):
        convert_dtype(np.array([0x3F80, 0xC780], "<u2"), "BF16", "F16")
