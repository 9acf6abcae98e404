"""The norms: their meaning against the formula, the kernels against their meaning."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.norms import naive
from kernels.norms import triton as kernel
from tests.kernels.tolerances import TOLERANCE, apart, assert_near, few, normal

DTYPES = tuple(TOLERANCE)


def test_rms_norm_is_its_formula() -> None:
    x, weight = normal(3, 5), normal(5, seed=1)
    expected = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-3) * (weight + 1)
    assert_near(naive.rms_norm(x, weight, 1e-3, 1.0), expected)


def test_layer_norm_is_its_formula() -> None:
    x, weight, bias = normal(3, 5), normal(5, seed=1), normal(5, seed=2)
    spread = torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-3)
    expected = (x - x.mean(-1, keepdim=True)) / spread * weight + bias
    assert_near(naive.layer_norm(x, weight, bias, 1e-3), expected)


def test_a_sum_in_float16_is_rounded_before_it_is_normed() -> None:
    x, residual = torch.full((1, 4), 2048.0).half(), torch.ones(1, 4).half()
    normed, total = naive.add_rms_norm(x, residual, torch.ones(4).half(), 0.0)
    assert total.tolist() == [[2048.0] * 4]
    assert_near(normed, torch.ones(1, 4).half())


@few
@given(
    st.integers(0, 9),
    st.integers(1, 5),
    st.integers(1, 300),
    st.sampled_from(DTYPES),
    st.booleans(),
)
def test_the_kernels_match_for_any_shape(
    tokens: int, heads: int, width: int, dtype: torch.dtype, offset: bool
) -> None:
    x, weight = normal(tokens, heads, width, dtype=dtype), normal(width, dtype=dtype, seed=1)
    shift = 1.0 if offset else 0.0
    expected = naive.rms_norm(x, weight, 1e-5, shift)
    assert_near(kernel.rms_norm(x, weight, 1e-5, shift), expected)
    assert_near(kernel.rms_norm(apart(x), weight, 1e-5, shift), expected)
    assert_near(
        kernel.layer_norm(apart(x), weight, weight, 1e-5),
        naive.layer_norm(x, weight, weight, 1e-5),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernel_adds_the_residual_and_norms_the_sum(dtype: torch.dtype) -> None:
    x, residual, weight = (normal(*shape, dtype=dtype) for shape in ((5, 48), (5, 48), (48,)))
    expected = naive.add_rms_norm(x, residual, weight, 1e-6)
    for got, wanted in zip(
        kernel.add_rms_norm(apart(x), residual, weight, 1e-6), expected, strict=True
    ):
        assert_near(got, wanted)


def test_heads_inside_wider_rows_are_normed_in_place_of_a_copy() -> None:
    rows, weight = normal(4, 7, 16), normal(16)
    assert_near(
        kernel.rms_norm(rows[:, 2:5], weight, 1e-6), naive.rms_norm(rows[:, 2:5], weight, 1e-6)
    )
