"""Log-probabilities are those of the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.host_sampling.logprobs import drawn_logprobs, token_logprobs
from tests import sampling_definition as sampling
from tests.properties import examples


@examples(30)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 30.0), st.integers(0, 20))
def test_they_are_those_of_the_reference(seed: int, spread: float, count: int) -> None:
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(2000) * spread).astype(np.float32)
    token = int(random.integers(2000))
    own, top = token_logprobs(logits, token, count)
    expected, expected_top = sampling.logprobs(logits, token, count)
    assert own == pytest.approx(expected, abs=1e-4)
    assert [id for id, _ in top] == [id for id, _ in expected_top]
    assert [nats for _, nats in top] == pytest.approx([n for _, n in expected_top], abs=1e-4)


def test_all_of_them_together_are_certain() -> None:
    logits = np.random.default_rng(1).standard_normal(300).astype(np.float32)
    _, top = token_logprobs(logits, 0, 300)
    assert math.fsum(math.exp(nats) for _, nats in top) == pytest.approx(1.0, abs=1e-6)


def test_more_alternatives_than_tokens_gives_them_all() -> None:
    _, top = token_logprobs(np.zeros(3, np.float32), 0, 20)
    assert [id for id, _ in top] == [0, 1, 2]


def test_those_after_the_samplers_are_of_what_is_left() -> None:
    ids, weights = np.array([7, 3, 9, 4]), np.array([1, 6, 0, 3], np.float32)
    own, top = drawn_logprobs(ids, weights, 4, 10)
    assert own == pytest.approx(math.log(0.3))
    assert [id for id, _ in top] == [3, 4, 7]
    assert [math.exp(nats) for _, nats in top] == pytest.approx([0.6, 0.3, 0.1])
    assert drawn_logprobs(ids, weights, 4, 1)[1] == top[:1]
