"""Rows with drafts: what is drawn is distributed as without, and masks are those of their place."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from runner.backends.backend import Row, TokenMask
from runner.backends.host_sampling.chain import CandidateArray
from runner.backends.host_sampling.rows import RowSampler
from runner.backends.host_sampling.sampler import HostSampler
from runner.types import SamplingParams

VOCABULARY = 8
DRAWS = 1500
LIMIT = 40.0  # of chi-square with up to 15 degrees of freedom: once in 2,000 by chance


class Only(TokenMask):
    """Allows one token."""

    def __init__(self, token: int) -> None:
        self._token = token

    def bits(self) -> bytes:
        return (1 << self._token).to_bytes(4, "little")


def logits() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Of the tokens after a row and a draft of one token."""
    return np.random.default_rng(5).normal(0, 1.5, (2, VOCABULARY)).astype(np.float32)


def drawn(params: SamplingParams, draft: tuple[int, ...]) -> tuple[int, ...]:
    sampler = HostSampler(params, CandidateArray(VOCABULARY), VOCABULARY)
    found = RowSampler(VOCABULARY).sample(Row(0, [1], 0, sampler, draft=draft), logits())
    return tuple(one.token for one in found)


@pytest.mark.parametrize("top_k", [0, VOCABULARY])
@pytest.mark.parametrize("draft", range(3))
def test_a_draft_changes_no_distribution(draft: int, top_k: int) -> None:
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(DRAWS):
        params = SamplingParams(temperature=0.8, top_k=top_k, top_p=1.0, seed=seed)
        tokens = drawn(params, (draft,))
        assert drawn(params, ()) == tokens[:1]  # the draft costs no random number
        assert (len(tokens) == 2) is (tokens[0] == draft)
        counts[tokens] += 1
    heat = np.exp(logits().astype(np.float64) / 0.8)
    first, second = heat / heat.sum(axis=1, keepdims=True)
    expected = {(token,): first[token] for token in range(VOCABULARY) if token != draft}
    expected |= {(draft, token): first[draft] * second[token] for token in range(VOCABULARY)}
    assert counts.keys() <= expected.keys()
    square = sum((counts[one] - DRAWS * p) ** 2 / (DRAWS * p) for one, p in expected.items())
    assert square < LIMIT
    assert math.isclose(sum(expected.values()), 1)


def test_each_token_of_a_draft_has_its_own_mask() -> None:
    sampler = HostSampler(SamplingParams(temperature=0.0), CandidateArray(VOCABULARY), VOCABULARY)
    row = Row(0, [1], 0, sampler, Only(3), draft=(3, 5), draft_masks=(Only(5), Only(6)))
    found = RowSampler(VOCABULARY).sample(row, np.zeros((3, VOCABULARY), np.float32))
    assert [one.token for one in found] == [3, 5, 6]
    row = Row(0, [1], 0, sampler, Only(3), draft=(3, 5), draft_masks=(Only(4), Only(6)))
    found = RowSampler(VOCABULARY).sample(row, np.zeros((3, VOCABULARY), np.float32))
    assert [one.token for one in found] == [3, 4]
