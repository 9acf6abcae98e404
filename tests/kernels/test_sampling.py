"""Sampling: its meaning against its definition in the engine, the kernels against their meaning."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels.sampling import naive
from kernels.sampling import triton as kernel
from kernels.sampling.naive import Draw
from runner.types import SamplingParams
from tests.kernels.tolerances import apart, few, normal
from tests.sampling_definition import distribution

SETTINGS = (
    SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    SamplingParams(temperature=0.7, top_k=12, top_p=0.9, min_p=0.0),
    SamplingParams(temperature=1.5, top_k=0, top_p=0.8, min_p=0.0),
    SamplingParams(temperature=2.0, top_k=0, top_p=1.0, min_p=0.05),
    SamplingParams(temperature=0.9, top_k=40, top_p=0.95, min_p=0.1),
    SamplingParams(temperature=1.0, top_k=0, top_p=0.0, min_p=0.0),
)


def drawn_as(params: SamplingParams, rows: int, seed: int = 7) -> Draw:
    """The same settings for each row; the rows are the steps of one seed."""

    def each(value: float, dtype: torch.dtype) -> Tensor:
        return torch.full((rows,), value, dtype=dtype)

    return Draw(
        each(params.temperature, torch.float32),
        each(params.top_k, torch.int64),
        each(params.top_p, torch.float32),
        each(params.min_p, torch.float32),
        each(seed, torch.int64),
        torch.arange(rows),
    )


@pytest.mark.parametrize("params", SETTINGS)
def test_tokens_come_as_often_as_the_engine_defines(params: SamplingParams) -> None:
    logits, count = normal(1, 300) * 2, 20_000
    expected = distribution(logits[0].numpy(), params, [])
    tokens = naive.sample(logits.expand(count, -1), drawn_as(params, count), None)
    seen = np.bincount(tokens.numpy(), minlength=300)
    assert not seen[expected == 0].any()
    likely = expected * count >= 5
    chi = ((seen - count * expected)[likely] ** 2 / (count * expected[likely])).sum()
    # Five standard deviations above the mean of the chi-squared distribution.
    assert chi < likely.sum() + 5 * np.sqrt(2 * likely.sum())


def test_the_mass_that_top_p_needs_may_lie_beyond_the_first_sorted() -> None:
    params = SamplingParams(temperature=1.0, top_k=0, top_p=0.5, min_p=0.0)
    logits = torch.linspace(0, 0.1, 20_000)[None].expand(200, -1)
    tokens = naive.sample(logits, drawn_as(params, 200), None)
    assert int(tokens.min()) >= 9_000
    assert len(tokens.unique()) > 190


def test_temperature_0_takes_the_best_token_and_of_equals_the_first() -> None:
    params = SamplingParams(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
    logits = torch.zeros(2, 700)
    logits[0, [300, 650]] = 2.0
    for sample in (naive.sample, kernel.sample):
        assert sample(logits, drawn_as(params, 2), None).tolist() == [300, 0]


def test_a_row_with_a_nan_is_marked_and_spoils_no_other() -> None:
    logits = normal(3, 500)
    good = naive.sample(logits, drawn_as(SETTINGS[1], 3), None).tolist()
    logits[1, 480] = torch.nan
    for sample in (naive.sample, kernel.sample):
        assert sample(logits, drawn_as(SETTINGS[1], 3), None).tolist() == [good[0], -1, good[2]]


def test_a_draw_depends_on_its_seed_and_step_and_not_on_the_batch() -> None:
    logits, draw = normal(8, 400), drawn_as(SETTINGS[0], 8)
    together = naive.sample(logits, draw, None)
    for row in range(8):
        rows = torch.tensor([row])
        assert naive.sample(logits[rows], draw.rows(rows), None) == together[row]
    other = naive.sample(logits, drawn_as(SETTINGS[0], 8, seed=8), None)
    assert (other != together).any()


def test_only_tokens_whose_bit_is_set_are_drawn() -> None:
    allowed = torch.tensor([3, 31, 32, 69])
    words = torch.zeros(1, 3, dtype=torch.int64)
    for token in allowed.tolist():
        words[0, token // 32] |= 1 << (token % 32)
    mask = words.to(torch.int32).expand(60, -1)
    for sample in (naive.sample, kernel.sample):
        tokens = sample(normal(60, 70), drawn_as(SETTINGS[0], 60), mask)
        assert set(tokens.tolist()) == set(allowed.tolist())


@few
@given(
    st.integers(0, 4),
    st.integers(1, 5000),
    st.sampled_from(SETTINGS),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
)
def test_the_kernel_draws_the_same_tokens(
    rows: int, size: int, params: SamplingParams, masked: bool, seed: int
) -> None:
    logits, draw = normal(rows, size) * 3, drawn_as(params, rows, seed)
    words = torch.arange(rows * -(-size // 32)).view(rows, -(-size // 32)) * 0x9E3779B1
    mask = (words | 1).to(torch.int32) if masked else None
    got, expected = kernel.sample(apart(logits), draw, mask), naive.sample(logits, draw, mask)
    assert got.tolist() == expected.tolist()
