from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.types import SamplingParams
from tests.properties import examples
from tests.sampling_definition import (
    adjust,
    candidates,
    distribution,
    dynamic_temperature,
    logprobs,
    sample,
)

OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def params(**changes: object) -> SamplingParams:
    values = {name: getattr(OFF, name) for name in SamplingParams.__slots__}
    return SamplingParams(**{**values, **changes})  # type: ignore[arg-type]


def logits_of(*probabilities: float) -> np.ndarray:
    return np.log(np.array(probabilities))


any_params = st.builds(
    params,
    temperature=st.floats(0, 3),
    top_k=st.integers(0, 12),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    typical_p=st.floats(0, 1),
    top_n_sigma=st.floats(0, 3),
    xtc_probability=st.floats(0, 1),
    xtc_threshold=st.floats(0, 1),
    mirostat=st.integers(0, 2),
    mirostat_tau=st.floats(0, 10),
    repeat_penalty=st.floats(0.5, 2),
    repeat_last_n=st.integers(-1, 5),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    dry_multiplier=st.sampled_from([0.0, 0.8]),
    dynatemp_range=st.sampled_from([0.0, 0.5, 4.0]),
    dynatemp_exponent=st.floats(0.1, 3),
)
any_logits = st.lists(st.floats(-20, 20), min_size=1, max_size=12).map(np.array)


@given(any_logits, any_params, st.data())
@examples(100)
def test_the_result_is_always_a_distribution(
    logits: np.ndarray, given_params: SamplingParams, data: st.DataObject
) -> None:
    history = data.draw(st.lists(st.integers(0, len(logits) - 1), max_size=8))
    before = logits.copy()
    result = distribution(logits, given_params, history)
    assert result.sum() == pytest.approx(1.0)
    assert (result >= 0).all()
    assert (logits == before).all()
    chosen = sample(logits, given_params, history, np.random.default_rng(0))
    assert result[chosen] > 0


def test_without_filters_it_is_the_softmax() -> None:
    assert distribution(logits_of(0.5, 0.3, 0.2), OFF, []) == pytest.approx([0.5, 0.3, 0.2])


def test_temperature_zero_takes_the_highest_logit_and_the_lower_id_of_equal_ones() -> None:
    greedy = params(temperature=0.0, top_k=1, top_p=0.0)
    assert distribution(np.array([1.0, 3.0, 3.0]), greedy, []).tolist() == [0, 1, 0]


def test_greedy_still_obeys_bias_and_penalties() -> None:
    greedy = params(temperature=0.0, logit_bias=((2, 5.0),), presence_penalty=9.0)
    assert sample(np.array([3.0, 2.0, 0.0]), greedy, [], np.random.default_rng(0)) == 2
    assert sample(np.array([3.0, 2.0, 0.0]), greedy, [2], np.random.default_rng(0)) == 0


def test_top_k_keeps_the_lower_ids_of_equal_logits() -> None:
    result = distribution(np.zeros(4), params(top_k=2), [])
    assert result == pytest.approx([0.5, 0.5, 0, 0])


def test_top_p_keeps_the_shortest_run_that_reaches_the_mass() -> None:
    logits = logits_of(0.5, 0.25, 0.125, 0.125)
    assert candidates(logits, params(top_p=0.5)).tolist() == [0]
    assert candidates(logits, params(top_p=0.51)).tolist() == [0, 1]
    assert candidates(logits, params(top_p=0.0)).tolist() == [0]


def test_min_p_is_relative_to_the_most_likely_token() -> None:
    logits = logits_of(0.5, 0.26, 0.14, 0.1)
    assert candidates(logits, params(min_p=0.5)).tolist() == [0, 1]
    assert candidates(logits, params(min_p=1.0)).tolist() == [0]


def test_typical_p_prefers_tokens_of_average_surprise() -> None:
    p = np.array([0.6, 0.2, 0.1, 0.1])
    entropy = -(p * np.log(p)).sum()
    closest = int(np.argmin(np.abs(-np.log(p) - entropy)))
    assert candidates(np.log(p), params(typical_p=0.1)).tolist() == [closest]
    assert len(candidates(np.log(p), params(typical_p=0.99))) == 4


def test_filters_run_in_order_and_renormalise() -> None:
    logits = logits_of(0.4, 0.3, 0.2, 0.1)
    # after top_k 2 the masses are 4/7 and 3/7, so top_p 0.5 keeps one; on all four it keeps two
    assert candidates(logits, params(top_k=2, top_p=0.5)).tolist() == [0]
    assert candidates(logits, params(top_p=0.5)).tolist() == [0, 1]


def test_temperature_comes_after_the_filters() -> None:
    logits = logits_of(0.5, 0.3, 0.2)
    hot = params(top_p=0.6, temperature=100.0)
    assert distribution(logits, hot, []) == pytest.approx([0.5, 0.5, 0], abs=0.01)


def test_the_repeat_penalty_pushes_down_on_both_sides_of_zero() -> None:
    adjusted = adjust(np.array([2.0, -2.0, 1.0]), params(repeat_penalty=2.0), [0, 1])
    assert adjusted.tolist() == [1.0, -4.0, 1.0]


def test_frequency_counts_and_presence_does_not() -> None:
    adjusted = adjust(
        np.zeros(3), params(frequency_penalty=0.5, presence_penalty=0.25), [1, 1, 1, 2]
    )
    assert adjusted.tolist() == [0.0, -1.75, -0.75]


@pytest.mark.parametrize(("last", "seen"), [(0, []), (1, [2]), (2, [1, 2]), (-1, [0, 1, 2])])
def test_penalties_look_back_so_many_tokens(last: int, seen: list[int]) -> None:
    adjusted = adjust(np.zeros(3), params(presence_penalty=1.0, repeat_last_n=last), [0, 1, 2])
    assert np.flatnonzero(adjusted).tolist() == seen


def test_bias_pairs_of_a_token_add_up_and_minus_infinity_bans() -> None:
    biased = params(logit_bias=((0, 1.0), (0, 2.0), (1, float("-inf"))))
    assert adjust(np.zeros(3), biased, []).tolist() == [3.0, float("-inf"), 0.0]
    assert distribution(np.zeros(3), biased, [])[1] == 0


def test_draws_follow_the_distribution_and_the_seed() -> None:
    logits = logits_of(0.5, 0.3, 0.2)
    rng, again = np.random.default_rng(7), np.random.default_rng(7)
    drawn = [sample(logits, OFF, [], rng) for _ in range(4000)]
    assert drawn[:50] == [sample(logits, OFF, [], again) for _ in range(50)]
    counts = Counter(drawn)
    assert [counts[t] / 4000 for t in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.03)


def test_log_probabilities_are_of_the_raw_logits_best_first() -> None:
    chosen, top = logprobs(logits_of(0.2, 0.5, 0.3), 0, 2)
    assert chosen == pytest.approx(np.log(0.2))
    assert [token for token, _ in top] == [1, 2]
    assert [nats for _, nats in top] == pytest.approx([np.log(0.5), np.log(0.3)])


def test_top_n_sigma_keeps_what_is_within_so_many_deviations_of_the_highest() -> None:
    logits = np.array([4.0, 3.0, 0.0, -3.0, -4.0])  # the deviation is the root of 10
    kept = distribution(logits, params(top_n_sigma=0.5), [])
    assert list(kept > 0) == [True, True, False, False, False]
    kept = distribution(logits, params(top_n_sigma=1.3), [])
    assert list(kept > 0) == [True, True, True, False, False]


def test_xtc_leaves_the_least_likely_of_those_above_the_threshold() -> None:
    logits = logits_of(0.5, 0.3, 0.15, 0.05)
    acted = params(xtc_probability=1.0, xtc_threshold=0.1)
    assert distribution(logits, acted, []) == pytest.approx([0, 0, 0.75, 0.25])
    half = params(xtc_probability=0.5, xtc_threshold=0.1)
    assert distribution(logits, half, []) == pytest.approx([0.25, 0.15, 0.45, 0.15])


@pytest.mark.parametrize("threshold", [0.4, 0.6])
def test_xtc_needs_two_tokens_above_a_threshold_of_at_most_one_half(threshold: float) -> None:
    logits = logits_of(0.5, 0.3, 0.2)
    acted = params(xtc_probability=1.0, xtc_threshold=threshold)
    assert distribution(logits, acted, []) == pytest.approx([0.5, 0.3, 0.2])


def test_mirostat_2_cuts_at_twice_its_target_in_bits_whatever_the_filters() -> None:
    logits = logits_of(0.5, 0.25, 0.125, 0.125)
    steered = params(mirostat=2, mirostat_tau=1.05, top_k=1)
    assert distribution(logits, steered, []) == pytest.approx([2 / 3, 1 / 3, 0, 0])


def test_a_repeated_run_costs_more_the_longer_it_is() -> None:
    logits = np.zeros(6)
    dry = params(dry_multiplier=0.5, dry_base=2.0)
    short = adjust(logits, dry, [1, 2, 3, 4, 1, 2])
    long = adjust(logits, dry, [0, 1, 2, 3, 4, 0, 1, 2])
    assert short.tolist() == [0, 0, 0, -0.5, 0, 0]
    assert long.tolist() == [0, 0, 0, -1.0, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"dry_penalty_last_n": 4},
        {"dry_allowed_length": 3},
        {"dry_breakers": {2: ((),)}},
        {"dry_breakers": {1: ((2,),)}},
        {"dry_breakers": {3: ((),)}},
    ],
)
def test_a_run_out_of_sight_or_cut_or_short_costs_nothing(change: dict[str, Any]) -> None:
    dry = params(dry_multiplier=0.5, **change)
    assert not adjust(np.zeros(6), dry, [1, 2, 3, 4, 1, 2]).any()


def test_the_dynamic_temperature_lies_between_its_ends() -> None:
    wide = params(temperature=1.0, dynatemp_range=0.5)
    assert dynamic_temperature(np.zeros(8), wide) == pytest.approx(1.5)
    assert dynamic_temperature(np.array([0.0, -800.0]), wide) == pytest.approx(0.5)
    assert dynamic_temperature(np.array([0.0, -np.inf]), wide) == 1.0
    sharp = params(temperature=1.0, dynatemp_range=0.5, dynatemp_exponent=4.0)
    uneven = np.array([0.0, -1.0, -2.0])
    assert 0.5 < dynamic_temperature(uneven, sharp) < dynamic_temperature(uneven, wide) < 1.5
