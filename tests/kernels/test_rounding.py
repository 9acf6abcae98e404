"""Weights rounded to fewer bits: how far each may be from what it was, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels.quant.rounding import column_magnitudes, outlier_columns, to_fp8, to_int4, to_int8

NONE = torch.empty(0, dtype=torch.int64)
matrices = st.tuples(
    st.integers(1, 9), st.integers(1, 4), st.sampled_from([1e-3, 0.02, 30.0]), st.integers(0, 99)
)


def matrix(rows: int, groups: int, size: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 64 * groups, generator=generator) * size


@given(matrices)
def test_int8_is_within_half_a_step_of_its_row(case: tuple[int, int, float, int]) -> None:
    weight = matrix(*case)
    rounded = to_int8(weight, NONE)
    apart = (rounded.dense(torch.float32) - weight).abs()
    steps = (weight.abs().amax(1, keepdim=True) / 127).clamp_min(2.0**-24)
    assert bool((apart <= 0.5001 * steps).all())


@given(matrices)
def test_fp8_keeps_three_bits_of_every_number(case: tuple[int, int, float, int]) -> None:
    weight = matrix(*case)
    apart = (to_fp8(weight).dense(torch.float32) - weight).abs()
    smallest = (weight.abs().amax(1, keepdim=True) / 448).clamp_min(2.0**-24) * 2**-10
    assert bool((apart <= weight.abs() / 16 + 1.001 * smallest).all())


@given(matrices, st.sampled_from([32, 64]))
def test_int4_is_within_a_step_of_its_group(case: tuple[int, int, float, int], group: int) -> None:
    weight = matrix(*case)
    rounded = to_int4(weight, group)
    wide = weight.unflatten(1, (-1, group))
    apart = (rounded.dense(torch.float32).unflatten(1, (-1, group)) - wide).abs()
    # The zero point is a whole number too: at the ends of a group a number may lack half a step.
    assert rounded.scales.shape == wide.shape[:2]
    assert bool((apart <= 1.02 * rounded.scales.float()[..., None]).all())


def test_more_bits_lose_less() -> None:
    weight = matrix(64, 4, 0.02, 3)
    lost = [
        float((rounded.dense(torch.float32) - weight).norm())
        for rounded in (to_int8(weight, NONE), to_fp8(weight), to_int4(weight, 64))
    ]
    assert lost == sorted(lost)
    assert lost[2] > 4 * lost[0]


def test_a_column_that_sticks_out_costs_the_others_nothing_when_it_is_kept() -> None:
    weight = matrix(32, 2, 0.02, 5)
    weight[:, 7] = 3.0
    columns = outlier_columns(column_magnitudes(weight))
    assert columns.tolist() == [7]
    others = torch.arange(128) != 7
    kept, plain = to_int8(weight, columns), to_int8(weight, NONE)
    lost = [float((one.dense(torch.float32) - weight)[:, others].norm()) for one in (kept, plain)]
    assert lost[0] < lost[1] / 10
    assert not kept.weight[:, 7].any()


def test_no_more_than_one_column_in_32_is_kept_and_none_of_plain_noise() -> None:
    assert not len(outlier_columns(column_magnitudes(matrix(64, 4, 1.0, 1))))
    weight = matrix(64, 1, 1.0, 1)
    weight[:, :20] *= 50
    assert len(outlier_columns(column_magnitudes(weight))) == 2
    assert not len(outlier_columns(torch.ones(8)))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    weight = matrix(3, 1, 1.0, 1)
    weight[1, 2] = value
    for rounded in (
        lambda: to_int8(weight, NONE),
        lambda: to_fp8(weight),
        lambda: to_int4(weight, 64),
    ):
        with pytest.raises(ValueError, match="infinite or no numbers"):
            rounded()
