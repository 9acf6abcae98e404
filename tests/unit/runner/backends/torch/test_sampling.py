"""Choosing tokens from logits: ties, penalties, log-probabilities, against the written meaning."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from runner.backends.backend import BackendError, Row, RowFault
from runner.backends.torch.sampling import BatchSampler
from runner.types import SamplingParams
from tests import sampling_definition as meaning
from tests.fake_backend import FakeSampler

VOCABULARY = 300


class _Bits:
    def __init__(self, bits: np.ndarray) -> None:
        self._bits = bits.tobytes()

    def bits(self) -> bytes:
        return self._bits


def logits(rows: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, VOCABULARY, generator=generator) * 3


@pytest.mark.parametrize("on_device", [False, True])
def test_of_equal_logits_the_lowest_token_is_the_likeliest(on_device: bool) -> None:
    sampling = BatchSampler(VOCABULARY, on_device=on_device)
    flat = torch.zeros(2, VOCABULARY)
    flat[1, [7, 40, 299]] = 2.0
    greedy = sampling.create(SamplingParams(temperature=0))
    rows = [Row(sequence, [1], 0, greedy) for sequence in (0, 1)]
    assert [found.token for found in sampling.sample(rows, flat)] == [0, 7]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0),
        SamplingParams(temperature=0, repeat_penalty=1.5, presence_penalty=1.0),
        SamplingParams(temperature=0, logit_bias=((4, 30.0), (5, -5.0))),
        SamplingParams(temperature=0.7, top_k=1),
        SamplingParams(temperature=0, watermark=True, watermark_delta=9.0),
    ],
)
@pytest.mark.parametrize("on_device", [False, True])
def test_a_certain_choice_is_that_of_the_definition(
    params: SamplingParams, on_device: bool
) -> None:
    sampling, history = BatchSampler(VOCABULARY, on_device=on_device), [3, 9, 9, 250]
    for seed in range(20):
        values = logits(1, seed)
        values[0, 9] = 12.0
        expected = int(meaning.distribution(values[0].numpy(), params, history).argmax())
        sampler = sampling.create(params)
        sampler.accept(history)
        [found] = sampling.sample([Row(0, history[-1:], 0, sampler)], values)
        assert found.token == expected


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.2, top_k=6, top_p=0.95, seed=3),
        SamplingParams(temperature=0.8, top_k=0, top_p=1.0, min_p=0.1, seed=4),
    ],
)
def test_draws_follow_the_distribution_of_the_definition(
    params: SamplingParams, on_device: bool
) -> None:
    sampling, values = BatchSampler(VOCABULARY, on_device=on_device), logits(1)
    sampler = sampling.create(params)
    draws = [
        sampling.sample([Row(0, [1], 0, sampler)], values.clone())[0].token for _ in range(3000)
    ]
    expected = meaning.distribution(values[0].numpy(), params, [])
    found = np.bincount(draws, minlength=VOCABULARY) / len(draws)
    assert np.abs(found - expected).max() < 0.04
    assert set(draws) <= set(np.flatnonzero(expected).tolist())


def test_plain_rows_and_others_mix_and_a_seed_draws_alone_what_it_draws_in_a_batch() -> None:
    sampling, values = BatchSampler(VOCABULARY, on_device=True), logits(4)
    basic = SamplingParams(temperature=1.5, seed=8)
    odd = SamplingParams(temperature=1.5, seed=8, typical_p=0.5)
    [alone] = sampling.sample([Row(0, [1], 0, sampling.create(basic))], values[2:3])
    kinds = (SamplingParams(temperature=0), odd, basic, SamplingParams(logprobs=2))
    rows = [Row(at, [1], 0, sampling.create(params)) for at, params in enumerate(kinds)]
    found = sampling.sample(rows, values)
    assert found[0].token == int(values[0].argmax())
    assert found[2].token == alone.token
    assert len(found[3].top) == 2


@pytest.mark.parametrize("params", [SamplingParams(temperature=0), SamplingParams(seed=6)])
@pytest.mark.parametrize("on_device", [False, True])
def test_tokens_after_a_draft_are_those_drawn_one_after_the_other(
    params: SamplingParams, on_device: bool
) -> None:
    sampling, values = BatchSampler(VOCABULARY, on_device=on_device), logits(4)
    sampler = sampling.create(params)
    steps = [sampling.sample([Row(0, [1], 0, sampler)], values[at : at + 1]) for at in range(3)]
    said = [found.token for [found] in steps]
    odd = next(token for token in range(VOCABULARY) if token not in said)
    for draft, confirmed in (([*said[:2], odd], 3), ([said[0], odd, 5], 2), ([odd, odd, 5], 1)):
        row = Row(0, [1], 0, sampling.create(params), draft=draft)
        found = sampling.sample([row], values.clone())
        assert [each.token for each in found] == said[:confirmed]


@pytest.mark.parametrize("on_device", [False, True])
def test_masks_hold_for_the_rows_that_have_one(on_device: bool) -> None:
    sampling, values = BatchSampler(VOCABULARY, on_device=on_device), logits(3)
    params = (SamplingParams(temperature=0), SamplingParams(seed=1), SamplingParams(logprobs=0))
    samplers = [sampling.create(each) for each in params]
    bits = np.zeros((VOCABULARY + 7) // 8, np.uint8)
    bits[299 // 8] = 1 << 299 % 8
    free = sampling.sample([Row(0, [1], 0, samplers[0])], values[:1])
    rows = [Row(at, [1], 0, sampler, _Bits(bits)) for at, sampler in enumerate(samplers)]
    assert [found.token for found in sampling.sample(rows, values)] == [299] * 3
    mixed = sampling.sample([Row(0, [1], 0, samplers[0]), rows[1]], values[:2])
    assert [found.token for found in mixed] == [free[0].token, 299]


@pytest.mark.parametrize("on_device", [False, True])
def test_a_row_of_nan_is_at_fault_and_the_others_are_not(on_device: bool) -> None:
    sampling, values = BatchSampler(VOCABULARY, on_device=on_device), logits(2)
    values[0, 5] = np.nan
    for params in (SamplingParams(temperature=0), SamplingParams(seed=1)):
        rows = [Row(at, [1], 0, sampling.create(params)) for at in (0, 1)]
        with pytest.raises(RowFault) as fault:
            sampling.sample(rows, values)
        assert fault.value.sequences == (0,)
        assert [found.sequence for found in fault.value.sampled] == [1]


def test_log_probabilities_are_of_the_raw_logits() -> None:
    params = SamplingParams(temperature=0, logprobs=4, logit_bias=((17, 100.0),))
    sampling, values = BatchSampler(VOCABULARY), logits(1)
    expected = meaning.logprobs(values[0].numpy(), 17, 4)
    [found] = sampling.sample([Row(0, [1], 0, sampling.create(params))], values)
    assert found.token == 17
    assert found.logprob == pytest.approx(expected[0], abs=1e-4)
    assert [token for token, _ in found.top] == [token for token, _ in expected[1]]


def test_a_sampler_of_another_backend_is_refused() -> None:
    sampling = BatchSampler(VOCABULARY)
    with pytest.raises(BackendError, match="not a sampler of this backend"):
        sampling.sample([Row(0, [1], 0, FakeSampler(SamplingParams()))], logits(1))
