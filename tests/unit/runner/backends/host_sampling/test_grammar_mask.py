"""A mask leaves the logits of what it allows, and no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.host_sampling.chain import CandidateArray
from runner.backends.host_sampling.grammar_mask import MaskBuffer, few_allowed_tokens
from runner.backends.host_sampling.sampler import HostSampler
from runner.types import SamplingParams

VOCABULARY = 5003  # not a multiple of 8 or 32


class Fixed:
    """A mask that allows these tokens; its bits fill whole words of 32, as llguidance's do."""

    def __init__(self, *tokens: int) -> None:
        allowed = np.zeros((VOCABULARY + 31) // 32 * 32, np.uint8)
        allowed[list(tokens)] = 1
        self._bits = np.packbits(allowed, bitorder="little").tobytes()

    def bits(self) -> bytes:
        return self._bits


@given(st.sets(st.integers(0, VOCABULARY - 1), max_size=40), st.integers(0, 2**32 - 1))
def test_what_is_allowed_keeps_its_logit_and_the_rest_is_banned(
    tokens: set[int], seed: int
) -> None:
    logits = np.random.default_rng(seed).standard_normal(VOCABULARY).astype(np.float32)
    before = logits.copy()
    masked = MaskBuffer(VOCABULARY).apply(logits, Fixed(*tokens))
    kept = sorted(tokens)
    np.testing.assert_array_equal(masked[kept], logits[kept])
    assert int((masked > -np.inf).sum()) == len(tokens)
    np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0),
        SamplingParams(seed=1),
        SamplingParams(seed=1, top_k=0, top_p=1.0),
        SamplingParams(seed=1, top_k=0, top_p=0.5),
        SamplingParams(seed=1, top_k=0, top_p=1.0, min_p=0.01),
        SamplingParams(seed=1, top_k=0, typical_p=0.5),
        SamplingParams(seed=1, top_n_sigma=1.0),
        SamplingParams(seed=1, xtc_probability=1.0),
        SamplingParams(seed=1, mirostat=2),
        SamplingParams(seed=1, repeat_penalty=1.5, presence_penalty=2.0),
        SamplingParams(seed=1, logit_bias=((7, 100.0), (4001, -100.0))),
    ],
    ids=lambda params: repr(params)[15:70],
)
def test_no_way_of_sampling_leaves_the_mask(params: SamplingParams) -> None:
    logits = np.random.default_rng(5).standard_normal(VOCABULARY).astype(np.float32)
    sampler = HostSampler(params, CandidateArray(VOCABULARY), VOCABULARY)
    masking, few = MaskBuffer(VOCABULARY), (12, 900, 4001)
    for _ in range(20):
        assert sampler.choose(masking.apply(logits, Fixed(*few))) in few
    assert sampler.choose(masking.apply(logits, Fixed(4001))) == 4001
    sampler.close()


@given(st.sets(st.integers(0, VOCABULARY - 1), max_size=60))
def test_few_allowed_tokens_are_named(tokens: set[int]) -> None:
    found = few_allowed_tokens(Fixed(*tokens), VOCABULARY)
    assert found is not None
    assert found.tolist() == sorted(tokens)


def test_many_allowed_tokens_are_not() -> None:
    assert few_allowed_tokens(Fixed(*range(0, VOCABULARY, 2)), VOCABULARY) is None


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0),
        SamplingParams(seed=1),
        SamplingParams(seed=1, top_k=3, min_p=0.05),
        SamplingParams(seed=1, top_k=0, top_p=1.0),
        SamplingParams(seed=1, top_k=0, top_p=0.5),
        SamplingParams(seed=1, top_k=0, top_p=1.0, min_p=0.01),
        SamplingParams(seed=1, top_k=0, typical_p=0.5),
        SamplingParams(seed=1, top_n_sigma=1.0),
        SamplingParams(seed=1, dynatemp_range=0.5),
        SamplingParams(seed=1, xtc_probability=0.5),
    ],
    ids=lambda params: repr(params)[15:70],
)
def test_among_few_the_same_tokens_are_chosen_as_from_the_masked_row(
    params: SamplingParams,
) -> None:
    masking, random = MaskBuffer(VOCABULARY), np.random.default_rng(5)
    among, whole = (HostSampler(params, CandidateArray(VOCABULARY), VOCABULARY) for _ in range(2))
    assert not among.needs_all_logits
    for _ in range(60):
        logits = random.standard_normal(VOCABULARY).astype(np.float32) * 3
        size = int(random.integers(2, 40))
        mask = Fixed(*random.choice(VOCABULARY, size, replace=False).tolist())
        ids = few_allowed_tokens(mask, VOCABULARY)
        assert ids is not None
        assert among.choose_among(logits, ids) == whole.choose(masking.apply(logits, mask))
    among.close()
    whole.close()


def test_the_only_allowed_token_is_chosen_unless_its_logit_is_none() -> None:
    sampler = HostSampler(SamplingParams(), CandidateArray(VOCABULARY), VOCABULARY)
    logits = np.zeros(VOCABULARY, np.float32)
    assert sampler.choose_among(logits, np.array([17])) == 17
    logits[17] = np.nan
    assert sampler.choose_among(logits, np.array([17])) is None
    sampler.close()


@pytest.mark.parametrize(
    "params", [SamplingParams(mirostat=2), SamplingParams(repeat_penalty=1.5),
               SamplingParams(logit_bias=((7, 1.0),))]
)  # fmt: skip
def test_what_looks_at_more_than_the_allowed_tokens_says_so(params: SamplingParams) -> None:
    sampler = HostSampler(params, CandidateArray(VOCABULARY), VOCABULARY)
    assert sampler.needs_all_logits
    sampler.close()
