"""The watermark on rows of logits means what runner/watermark.py says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from runner.backends.backend import Row, TokenMask
from runner.backends.host_sampling.chain import CandidateArray
from runner.backends.host_sampling.rows import RowSampler
from runner.backends.host_sampling.sampler import HostSampler
from runner.backends.host_sampling.watermark import green_tokens
from runner.types import SamplingParams
from runner.watermark import MARKED_Z, detect, is_green
from tests.sampling_definition import distribution, softmax

VOCABULARY = 300
MARKED = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, watermark=True, seed=1)


class Only(TokenMask):
    """Allows some tokens."""

    def __init__(self, *tokens: int) -> None:
        allowed = np.zeros((VOCABULARY + 31) // 32 * 32, np.uint8)
        allowed[list(tokens)] = 1
        self._bits = np.packbits(allowed, bitorder="little").tobytes()

    def bits(self) -> bytes:
        return self._bits


def logits_of(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(0, 2, VOCABULARY).astype(np.float32)


def sampler(params: SamplingParams = MARKED) -> HostSampler:
    return HostSampler(params, CandidateArray(VOCABULARY), VOCABULARY)


@pytest.mark.parametrize("gamma", [0.01, 0.25, 0.5, 0.99])
@pytest.mark.parametrize("previous", [0, 1, 299, 151_935, -3])
def test_a_row_is_coloured_as_token_by_token(previous: int, gamma: float) -> None:
    green = green_tokens(VOCABULARY).after(previous, gamma)
    assert green.tolist() == [is_green(previous, each, gamma) for each in range(VOCABULARY)]


@pytest.mark.parametrize("more", [{}, {"top_k": 20}, {"top_p": 0.8}, {"repeat_penalty": 1.5}])
def test_tokens_are_drawn_as_the_definition_has_it(more: dict[str, Any]) -> None:
    params = replace(MARKED, **more)
    logits, history = logits_of(4), [7, 9]
    expected = distribution(logits, params, history)
    count = 4000
    drawn: Counter[int] = Counter()
    for seed in range(count):
        one = sampler(replace(params, seed=seed))
        one.accept(history)
        drawn[one.choose(logits, 9) or 0] += 1
    for token in np.argsort(-expected)[:8]:
        share = expected[token]
        deviation = np.sqrt(count * share * (1 - share))
        assert abs(drawn[int(token)] - count * share) < 5 * deviation + 1
    assert all(expected[token] > 0 for token in drawn)


def test_the_likeliest_marked_token_wins_at_temperature_0() -> None:
    params = SamplingParams(temperature=0.0, watermark=True, watermark_delta=3.0)
    for previous in range(20):
        logits = logits_of(previous)
        expected = int(distribution(logits, params, [previous]).argmax())
        assert sampler(params).choose(logits, previous) == expected


def test_logits_are_as_before() -> None:
    logits = logits_of(1)
    before = logits.copy()
    sampler().choose(logits, 5)
    assert np.array_equal(logits, before)


def test_log_probabilities_are_those_of_the_model() -> None:
    plain = SamplingParams(temperature=0.0, logprobs=2)
    marked = SamplingParams(temperature=0.0, logprobs=2, watermark=True, watermark_delta=0.0)
    rows = [Row(0, [5], 0, sampler(params)) for params in (plain, marked)]
    first, second = (RowSampler(VOCABULARY).sample(row, logits_of(2)[None])[0] for row in rows)
    assert first == second


def test_a_grammar_holds_and_what_it_allows_is_marked() -> None:
    green = [each for each in range(VOCABULARY) if is_green(5, each, 0.5)]
    red = [each for each in range(VOCABULARY) if not is_green(5, each, 0.5)]
    params = SamplingParams(temperature=0.0, watermark=True, watermark_delta=50.0)
    for allowed, expected in (((green[0], red[0], red[1]), green[0]), ((red[3],), red[3])):
        row = Row(0, [5], 0, sampler(params), Only(*allowed))
        (chosen,) = RowSampler(VOCABULARY).sample(row, logits_of(6)[None])
        assert chosen.token == expected


def test_a_draft_is_confirmed_as_its_tokens_would_be_drawn_one_by_one() -> None:
    """Of each the token before it counts, be it drafted or not."""
    params = SamplingParams(temperature=0.0, watermark=True, watermark_delta=4.0)
    outputs = np.stack([logits_of(each) for each in range(4)])
    alone: list[int] = []
    for logits in outputs:
        row = Row(0, [alone[-1] if alone else 5], 0, sampler(params))
        alone += [each.token for each in RowSampler(VOCABULARY).sample(row, logits[None])]
    drafted = Row(0, [5], 0, sampler(params), draft=alone[:3])
    together = RowSampler(VOCABULARY).sample(drafted, outputs)
    assert [each.token for each in together] == alone


def test_marked_answers_of_200_tokens_are_found_and_plain_ones_are_not() -> None:
    """From logits of the entropy that text has: some 3.4 nats."""
    rng = np.random.default_rng(5)
    ranks = np.log(np.arange(1, VOCABULARY + 1)) * -1.35
    shares = softmax(ranks)
    assert 3.0 < -(shares * np.log(shares)).sum() < 3.6
    found: dict[bool, list[float]] = {True: [], False: []}
    for answer in range(60):
        for marked, scores in found.items():
            one = sampler(SamplingParams(1.0, 0, 1.0, watermark=marked, seed=answer))
            tokens = [answer]
            for _ in range(200):
                logits = rng.permutation(ranks).astype(np.float32)
                tokens.append(one.choose(logits, tokens[-1]) or 0)
            scores.append(detect(tokens[1:], 0.25).z_score)
    assert sum(score > MARKED_Z for score in found[True]) >= 57
    assert not any(score > MARKED_Z for score in found[False])


def test_rows_of_a_batch_do_not_share_a_mark() -> None:
    """Each of many rows has the token that it has alone."""
    outputs = np.stack([logits_of(each) for each in range(6)])
    rows = [Row(each, [each + 20], 0, sampler(replace(MARKED, seed=each))) for each in range(6)]
    together = RowSampler(VOCABULARY)
    found = [together.sample(row, outputs[at][None])[0].token for at, row in enumerate(rows)]
    for at, token in enumerate(found):
        row = Row(0, [at + 20], 0, sampler(replace(MARKED, seed=at)))
        assert RowSampler(VOCABULARY).sample(row, outputs[at][None])[0].token == token
