"""The window of recent tokens counts what is in it, and nothing else."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from runner.backends.host_sampling.penalties import LogitAdjustment, PenaltyWindow
from runner.types import SamplingParams
from tests.properties import examples


@examples(60)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=8), max_size=8),
    st.none() | st.integers(1, 10),
)
def test_a_window_counts_its_last_tokens(parts: list[list[int]], size: int | None) -> None:
    window = PenaltyWindow(size)
    for part in parts:
        window.extend(part)
    history = [token for part in parts for token in part]
    inside = history if size is None else history[-size:]
    tokens, counts = window.counts()
    assert dict(zip(tokens.tolist(), counts.tolist(), strict=True)) == Counter(inside)


def test_without_bias_and_penalties_nothing_is_to_be_done() -> None:
    assert not LogitAdjustment(SamplingParams()).active
    assert not LogitAdjustment(SamplingParams(repeat_penalty=2.0, repeat_last_n=0)).active
    assert LogitAdjustment(SamplingParams(repeat_penalty=2.0)).active
    assert LogitAdjustment(SamplingParams(logit_bias=((1, 2.0),))).active
