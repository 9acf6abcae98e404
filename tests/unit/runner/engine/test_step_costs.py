"""What steps cost, and which proposals are verified."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engine.step_costs import MARGIN, MIN_ODDS, StepCosts, choose


def measured(true_cost: dict[int, float], seed: int = 1, drift: float = 0.0) -> StepCosts:
    """After 400 steps of random sizes, whose time scatters and grows by drift in all."""
    costs, chance = StepCosts(), random.Random(seed)
    for at in range(400):
        tokens = chance.choice(list(true_cost))
        noise = chance.uniform(0.9, 1.1) * (1 + drift * at / 400)
        costs.observe(tokens, 0.01 * true_cost[tokens] * noise)
    return costs


@pytest.mark.parametrize("drift", [0.0, 3.0], ids=["even", "slower and slower"])
def test_the_costs_of_steps_are_learned_from_their_times(drift: float) -> None:
    true_cost = {1: 1.0, 2: 1.1, 4: 1.3, 8: 3.4, 16: 4.0}
    costs = measured(true_cost, drift=drift)
    for tokens, expected in true_cost.items():
        assert costs.cost(tokens) == pytest.approx(expected, rel=0.12)
    assert costs.cost(2) < costs.cost(6) < costs.cost(8)
    assert costs.token_s == pytest.approx(0.01 * (1 + drift), rel=0.15)


def test_a_step_that_something_interrupted_changes_little() -> None:
    costs = measured({1: 1.0, 4: 1.3})
    before = costs.cost(4)
    costs.observe(1, 0.01)
    costs.observe(4, 10.0)
    assert costs.cost(4) < 1.05 * before


def test_steps_that_take_no_time_teach_nothing() -> None:
    costs = StepCosts()
    costs.observe(1, 0.0)
    costs.observe(4, 0.0)
    assert costs.cost(4) == StepCosts().cost(4)


def test_nothing_is_verified_that_costs_more_than_it_brings() -> None:
    costs = measured({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0, 8: 8.0})
    assert choose(costs, [[0.9] * 7], 7) == [0]
    cheap = measured({1: 1.0, 2: 1.05, 3: 1.1, 4: 1.15, 8: 1.35})
    assert choose(cheap, [[0.9] * 7], 7) == [7]
    assert choose(cheap, [[0.9] * 7], 3) == [3]
    assert choose(cheap, [[0.01] * 7], 7) == [0]


def test_proposals_of_several_sequences_go_by_their_odds() -> None:
    assert choose(StepCosts(), [[0.9, 0.9], [], [0.95, 0.2]], 2) == [1, 0, 1]
    assert choose(StepCosts(), [[], []], 8) == [0, 0]


@given(
    st.lists(st.lists(st.floats(MIN_ODDS, 1.0), max_size=3), min_size=1, max_size=3),
    st.integers(0, 5),
)
def test_no_other_choice_gives_more_tokens_in_its_time(odds: list[list[float]], most: int) -> None:
    costs = StepCosts()

    def rate(counts: tuple[int, ...] | list[int]) -> float:
        expected = float(len(odds))
        for own, count in zip(odds, counts, strict=True):
            reach = 1.0
            for one in own[:count]:
                reach *= one
                expected += reach / MARGIN
        return expected / costs.cost(len(odds) + sum(counts))

    chosen = choose(costs, odds, most)
    assert sum(chosen) <= most
    every = product(*(range(len(own) + 1) for own in odds))
    best = max(rate(counts) for counts in every if sum(counts) <= most)
    assert rate(chosen) == pytest.approx(best, rel=0.02)  # what is unlikely is not looked at
