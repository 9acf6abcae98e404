"""What looks at a whole vocabulary without sorting it finds what sorting finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.host_sampling.nucleus import draw, locate, nucleus
from tests.properties import examples


@examples(40)
@given(
    size=st.integers(1, 20_000),
    spread=st.floats(0.0, 8.0),
    mass=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_nucleus_is_the_shortest_run_with_the_mass(
    size: int, spread: float, mass: float, seed: int
) -> None:
    logits = (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)
    ids = nucleus(logits, float(logits.max()), mass)
    order = np.argsort(-logits, kind="stable")
    np.testing.assert_array_equal(ids, order[: len(ids)])
    powers = np.exp(np.float64(logits) - logits.max())
    probabilities = powers[ids] / powers.sum()
    assert probabilities.sum() >= mass - 1e-6
    assert len(ids) == 1 or probabilities[:-1].sum() < mass + 1e-6


@examples(60)
@given(
    size=st.integers(1, 9000),
    share=st.floats(0.0, 1.0, exclude_max=True),
    zeros=st.floats(0.0, 0.99),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_share_of_the_whole_is_found_where_the_running_sum_passes_it(
    size: int, share: float, zeros: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weights = random.random(size, np.float32)
    weights[random.random(size) < zeros] = 0
    weights[random.integers(size)] = 1
    index = locate(weights, share)
    running = np.cumsum(weights, dtype=np.float64)
    slack = 1e-9 * running[-1]
    assert weights[index] > 0
    assert running[index] > share * running[-1] - slack
    assert running[index] - weights[index] <= share * running[-1] + slack


@pytest.mark.parametrize("share", [0.0, 0.5, 1 - 2**-53])
def test_a_draw_never_gives_a_banned_token(share: float) -> None:
    logits = np.full(5000, -np.inf, np.float32)
    logits[[17, 4000]] = 1.0
    assert draw(logits, 1.0, 0.7, share) in (17, 4000)


def test_draws_divide_the_shares_by_probability() -> None:
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    peak = float(logits.max())
    drawn = [draw(logits, peak, 1.0, share) for share in (0.05, 0.2, 0.5, 0.7)]
    assert drawn == [0, 1, 2, 3]
    sharp = [draw(logits, peak, 0.5, share) for share in (0.02, 0.05, 0.2, 0.5)]
    assert sharp == [0, 1, 2, 3]
