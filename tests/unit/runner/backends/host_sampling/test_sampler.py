"""The sampler means what tests/sampling_definition.py says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from runner.backends.host_sampling.chain import CandidateArray
from runner.backends.host_sampling.sampler import HostSampler
from runner.errors import InvalidRequest
from runner.types import SamplingParams
from tests.properties import examples
from tests.sampling_definition import adjust, distribution

VOCABULARY = 3000
NEVER = 1e-12  # float32 holds less, but nobody will see it drawn

off_or = st.sampled_from
parameters = st.builds(
    SamplingParams,
    temperature=st.floats(0.05, 3.0),
    top_k=off_or([1, 2, 7, 40, 41, 90]),
    top_p=off_or([1.0, 1.0, 0.0, 0.123, 0.5, 0.9, 0.999]),
    min_p=off_or([0.0, 0.0, 0.01, 0.1, 0.77, 1.0, 2.0]),
    typical_p=off_or([1.0, 1.0, 0.0, 0.21, 0.53, 0.987]),
    top_n_sigma=off_or([0.0, 0.0, 0.9, 2.3]),
    xtc_probability=off_or([0.0, 0.0, 1.0]),
    xtc_threshold=off_or([0.013, 0.1, 0.51]),
    repeat_penalty=off_or([1.0, 0.7, 1.1, 3.0]),
    repeat_last_n=off_or([-1, 0, 1, 3, 64]),
    presence_penalty=off_or([0.0, 0.6, -1.5]),
    frequency_penalty=off_or([0.0, 0.3, -0.4]),
    dry_multiplier=off_or([0.0, 0.0, 0.8]),
    dry_allowed_length=off_or([1, 2]),
    logit_bias=st.lists(
        st.tuples(st.integers(0, VOCABULARY - 1), off_or([-np.inf, -5.0, 0.7, 9.0])), max_size=4
    ).map(tuple),
    seed=st.integers(0, 2**63 - 1),
)
cases = st.tuples(
    st.integers(0, 2**32 - 1),
    st.floats(0.3, 8.0),
    st.lists(st.integers(0, VOCABULARY - 1), max_size=12),
)


def random_logits(seed: int, spread: float) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(VOCABULARY) * spread).astype(np.float32)


def probabilities(
    params: SamplingParams, logits: NDArray[np.float32], history: list[int]
) -> NDArray[np.float64]:
    """Of every token to be drawn by our sampler."""
    told = replace(params, drawn_logprobs=True)
    sampler = HostSampler(told, CandidateArray(VOCABULARY), VOCABULARY)
    sampler.accept(history)
    token = sampler.choose(logits)
    sampler.close()
    assert sampler.drawn_from is not None
    ids, weights = sampler.drawn_from
    assert token in ids
    result = np.zeros(VOCABULARY)
    result[ids] = weights / weights.sum(dtype=np.float64)
    return result


@examples(50)
@given(parameters, cases)
def test_probabilities_are_those_of_the_reference(
    params: SamplingParams, case: tuple[int, float, list[int]]
) -> None:
    seed, spread, history = case
    logits = random_logits(seed, spread)
    expected = distribution(logits, params, history)
    found = probabilities(params, logits, history)
    np.testing.assert_array_equal(found > NEVER, expected > NEVER)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@examples(40)
@given(
    parameters.filter(lambda params: params.min_p > 0 or params.top_p < 1 or params.typical_p < 1),
    cases,
    st.sampled_from([0, 500, 5000]),
)
def test_probabilities_over_many_candidates_are_those_of_the_reference(
    params: SamplingParams, case: tuple[int, float, list[int]], top_k: int
) -> None:
    seed, spread, history = case
    params = replace(params, top_k=top_k)
    logits = random_logits(seed, spread)
    expected = distribution(logits, params, history)
    found = probabilities(params, logits, history)
    # llama.cpp adds up in float32: over thousands of candidates the border of typical_p or of
    # top_p may fall one token further, on each side
    moved = (found > NEVER) != (expected > NEVER)
    assert moved.sum() <= 2
    slack = np.abs(found - expected)[moved].sum()
    np.testing.assert_allclose(found, expected, atol=1e-5 + slack)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 2.0])
def test_probabilities_without_filters_are_those_of_the_reference(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=0, top_p=1.0, repeat_penalty=1.3)
    logits = random_logits(3, 2.0)
    expected = distribution(logits, params, [5, 6])
    np.testing.assert_allclose(probabilities(params, logits, [5, 6]), expected, atol=1e-5)


@examples(30)
@given(parameters, cases, st.integers(1, 3))
def test_greedy_choices_are_those_of_the_reference(
    params: SamplingParams, case: tuple[int, float, list[int]], decimals: int
) -> None:
    seed, spread, history = case
    logits = np.round(random_logits(seed, spread), decimals)  # so that there are ties
    greedy = SamplingParams(
        temperature=0.0,
        repeat_penalty=params.repeat_penalty,
        repeat_last_n=params.repeat_last_n,
        logit_bias=params.logit_bias,
    )
    sampler = HostSampler(greedy, CandidateArray(VOCABULARY), VOCABULARY)
    sampler.accept(history)
    assert sampler.choose(logits) == distribution(logits, greedy, history).argmax()


@examples(30)
@given(parameters, cases)
def test_logits_are_left_as_they_were(
    params: SamplingParams, case: tuple[int, float, list[int]]
) -> None:
    seed, spread, history = case
    logits = random_logits(seed, spread)
    before = logits.copy()
    sampler = HostSampler(params, CandidateArray(VOCABULARY), VOCABULARY)
    sampler.accept(history)
    sampler.choose(logits)
    sampler.close()
    np.testing.assert_array_equal(logits, before)


@examples(40)
@given(
    parameters,
    cases,
    st.permutations(
        ["top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"]
    ).flatmap(lambda names: st.integers(0, 7).map(lambda count: tuple(names[:count]))),
)
def test_samplers_in_another_order_are_those_of_the_reference(
    params: SamplingParams, case: tuple[int, float, list[int]], names: tuple[str, ...]
) -> None:
    seed, spread, history = case
    params = replace(params, samplers=names)
    logits = random_logits(seed, spread)
    expected = distribution(logits, params, history)
    found = probabilities(params, logits, history)
    moved = (found > NEVER) != (expected > NEVER)  # as above: sums in float32
    assert moved.sum() <= 2
    slack = np.abs(found - expected)[moved].sum()
    np.testing.assert_allclose(found, expected, atol=1e-5 + slack)


def test_the_order_of_samplers_counts() -> None:
    logits = np.array([4.0, 3.0, 2.0, 1.0], np.float32)
    shared = {"temperature": 4.0, "top_k": 0, "top_p": 0.6, "seed": 1}
    after = SamplingParams(**shared, samplers=("top_p", "temperature"))
    before = SamplingParams(**shared, samplers=("temperature", "top_p"))
    left = []
    for params in (after, before):
        candidates = CandidateArray(4)
        sampler = HostSampler(params, candidates, 4)
        sampler.choose(logits)
        left.append(len(candidates.remaining()[0]))
        sampler.close()
    assert left == [1, 2]


def test_sampled_penalties_count_the_output_only_and_all_of_it() -> None:
    logits = np.zeros(6, np.float32)
    params = SamplingParams(
        temperature=0, presence_penalty=1.0, frequency_penalty=0.5, sampled_penalties=True,
        repeat_last_n=1,
    )  # fmt: skip
    sampler = HostSampler(params, CandidateArray(6), 6)
    sampler.accept([0, 1, 2, 3])
    drawn = [sampler.choose(logits) for _ in range(7)]
    assert drawn == [0, 1, 2, 3, 4, 5, 0]


def test_the_repeat_penalty_keeps_its_window_beside_sampled_penalties() -> None:
    logits = np.array([3.0, 2.9, 2.8], np.float32)
    params = SamplingParams(
        temperature=0, repeat_penalty=10.0, repeat_last_n=1, presence_penalty=0.01,
        sampled_penalties=True,
    )  # fmt: skip
    sampler = HostSampler(params, CandidateArray(3), 3)
    sampler.accept([0])
    history, chosen = [0], []
    for _ in range(6):
        token = sampler.choose(logits)
        assert token == int(np.argmax(adjust(logits, params, history, 1)))
        chosen.append(token)
        history.append(token)
    assert chosen == [1, 0, 1, 0, 1, 0]


def test_draws_follow_the_probabilities() -> None:
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, seed=3)
    sampler = HostSampler(params, CandidateArray(4), 4)
    drawn = Counter(sampler.choose(logits) for _ in range(4000))
    assert [drawn[token] / 4000 for token in range(4)] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4], abs=0.03
    )


def test_chosen_tokens_are_penalised_from_then_on() -> None:
    logits = np.array([1.0, 3.0, 2.0], np.float32)
    params = SamplingParams(temperature=0, presence_penalty=10.0, repeat_last_n=2)
    sampler = HostSampler(params, CandidateArray(3), 3)
    assert [sampler.choose(logits) for _ in range(5)] == [1, 2, 0, 1, 2]


def draws(params: SamplingParams) -> list[int | None]:
    sampler = HostSampler(params, CandidateArray(VOCABULARY), VOCABULARY)
    return [sampler.choose(random_logits(at, 1.0)) for at in range(12)]


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**63, -5])
def test_any_seed_reproduces(seed: int) -> None:
    params = SamplingParams(temperature=2.0, seed=seed)
    assert draws(params) == draws(params)


def test_without_a_seed_every_request_draws_anew() -> None:
    assert draws(SamplingParams(temperature=2.0)) != draws(SamplingParams(temperature=2.0))


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 0.7])
@pytest.mark.parametrize("spoil", [np.nan, np.inf])
def test_numbers_that_are_no_probabilities_give_no_token(temperature: float, spoil: float) -> None:
    logits = random_logits(1, 1.0)
    logits[1234] = spoil
    params = SamplingParams(temperature=temperature)
    assert HostSampler(params, CandidateArray(VOCABULARY), VOCABULARY).choose(logits) is None


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_bias_that_bans_every_token_gives_no_token(temperature: float) -> None:
    bans = tuple((token, -np.inf) for token in range(5))
    params = SamplingParams(temperature=temperature, logit_bias=bans)
    logits = np.arange(5, dtype=np.float32)
    assert HostSampler(params, CandidateArray(5), 5).choose(logits) is None


@pytest.mark.parametrize("top_k", [0, 3, 40])
def test_banned_tokens_are_never_drawn(top_k: int) -> None:
    bans = tuple((token, -np.inf) for token in range(4))
    params = SamplingParams(temperature=5.0, top_k=top_k, top_p=1.0, logit_bias=bans)
    sampler = HostSampler(params, CandidateArray(6), 6)
    drawn = {sampler.choose(np.zeros(6, np.float32)) for _ in range(200)}
    assert drawn == {4, 5}


def test_a_temperature_near_zero_is_greedy() -> None:
    logits = random_logits(4, 1.0)
    params = SamplingParams(temperature=1e-30, top_p=1.0, top_k=0)
    sampler = HostSampler(params, CandidateArray(VOCABULARY), VOCABULARY)
    assert sampler.choose(logits) == logits.argmax()


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_repeat_penalty_that_divides_by_nothing_is_refused(value: float) -> None:
    with pytest.raises(InvalidRequest, match="repeat_penalty"):
        HostSampler(SamplingParams(repeat_penalty=value), CandidateArray(5), 5)


@examples(30)
@given(cases, st.sampled_from([1, 2]), st.floats(1.0, 6.0), st.floats(0.3, 2.0))
def test_the_first_draw_of_mirostat_is_of_the_distribution_of_the_reference(
    case: tuple[int, float, list[int]], version: int, tau: float, temperature: float
) -> None:
    seed, spread, history = case
    params = SamplingParams(
        mirostat=version, mirostat_tau=tau, temperature=temperature, top_k=3, seed=seed
    )
    logits = random_logits(seed, spread)
    expected = distribution(logits, params, history)
    found = probabilities(params, logits, history)
    # in float32 the border may fall one token further
    moved = (found > NEVER) != (expected > NEVER)
    assert moved.sum() <= 2
    np.testing.assert_allclose(found, expected, atol=1e-4 + np.abs(found - expected)[moved].sum())


@examples(30)
@given(parameters, cases, st.sampled_from([0.02, 0.5, 2.0]), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_dynamic_temperature_is_that_of_the_reference(
    params: SamplingParams, case: tuple[int, float, list[int]], spread: float, exponent: float
) -> None:
    seed, breadth, history = case
    params = replace(params, dynatemp_range=spread, dynatemp_exponent=exponent)
    logits = random_logits(seed, breadth)
    expected = distribution(logits, params, history)
    found = probabilities(params, logits, history)
    # llama.cpp's entropy is of float32: near 0 it, and the temperature with it, has few digits
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_tokens_that_would_repeat_a_run_are_drawn_less() -> None:
    logits = np.zeros(6, np.float32)
    logits[3] = 1.0
    params = SamplingParams(temperature=0, dry_multiplier=2.0)
    sampler = HostSampler(params, CandidateArray(6), 6)
    sampler.accept([1, 2, 3, 4, 1, 2])
    assert sampler.choose(logits) == 0


def test_mirostat_steers_towards_the_surprise_it_aims_at() -> None:
    logits = random_logits(5, 1.0)
    p = np.exp(logits - logits.max())
    bits = -np.log2(p / p.sum())
    means = []
    for tau in (5.0, 9.0):
        params = SamplingParams(mirostat=2, mirostat_tau=tau, temperature=1.0, seed=3)
        sampler = HostSampler(params, CandidateArray(VOCABULARY), VOCABULARY)
        drawn = [sampler.choose(logits) for _ in range(200)]
        sampler.close()
        means.append(np.mean([bits[token] for token in drawn if token is not None]))
    assert means[0] < means[1] - 1


def test_xtc_acts_as_often_as_its_probability_says() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2], dtype=np.float32))
    params = SamplingParams(
        temperature=1.0, top_p=1.0, xtc_probability=0.5, xtc_threshold=0.25, seed=11
    )
    sampler = HostSampler(params, CandidateArray(3), 3)
    counts = Counter(sampler.choose(logits) for _ in range(4000))
    sampler.close()
    shares = [counts[token] / 4000 for token in range(3)]
    np.testing.assert_allclose(shares, distribution(logits, params, []), atol=0.04)
