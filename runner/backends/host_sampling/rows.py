"""From the logits of a step to the tokens of its rows: masks, drafts, scores, log-probabilities.

Knows the rows of a step, not where logits come from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from runner.backends.backend import (
    BackendError,
    Capacity,
    Row,
    SampledToken,
    TokenLogprob,
    TokenMask,
)
from runner.backends.host_sampling.chain import CandidateArray
from runner.backends.host_sampling.grammar_mask import MaskBuffer, few_allowed_tokens
from runner.backends.host_sampling.logits import LogitRows, Logits
from runner.backends.host_sampling.logprobs import drawn_logprobs, token_logprobs
from runner.backends.host_sampling.sampler import HostSampler


class RowSampler:
    """Samples rows one after the other; one thread at a time."""

    def __init__(self, vocabulary: int) -> None:
        self.candidates = CandidateArray(vocabulary)
        self._masks = MaskBuffer(vocabulary)

    def sample(self, row: Row, logits: LogitRows) -> list[SampledToken]:
        """The token after the row's, then one after each token of its draft that the one before
        confirms, from logits [up to 1 + draft, vocabulary], which are written to and restored. It
        ends early where logits cannot be used."""
        sampled: list[SampledToken] = []
        drafts = zip((row.tokens[-1], *row.draft), (*row.draft, None), row.masks, strict=False)
        for output, (previous, proposed, mask) in zip(logits, drafts, strict=False):
            found = self._choose(row, output, mask, previous)
            if found is None:
                break
            sampled.append(found)
            if found.token != proposed:
                break
        return sampled

    def _choose(
        self, row: Row, logits: Logits, mask: TokenMask | None, previous: int
    ) -> SampledToken | None:
        sampler = row.sampler
        assert isinstance(sampler, HostSampler)
        if mask is None:
            token = sampler.choose(logits, previous)
        elif sampler.needs_all_logits or (few := few_allowed_tokens(mask, len(logits))) is None:
            token = sampler.choose(self._masks.apply(logits, mask), previous)
        else:
            token = sampler.choose_among(logits, few) if len(few) else None
        if token is None:
            return None
        count = sampler.params.logprobs
        if count is None:
            return SampledToken(row.sequence, token)
        if sampler.drawn_from is not None:
            found = drawn_logprobs(*sampler.drawn_from, token, count)
            return SampledToken(row.sequence, token, *found)
        return SampledToken(row.sequence, token, *token_logprobs(logits, token, count))


def check_limits(rows: Sequence[Row], capacity: Capacity) -> None:
    """Raises BackendError for more targets or drafted tokens than a step may have."""
    targets = sum(len(row.scoring.targets) for row in rows if row.scoring is not None)
    if targets > capacity.score_tokens:
        raise BackendError(f"{targets} tokens to score of {capacity.score_tokens}")
    drafted = sum(len(row.draft) for row in rows)
    if drafted > capacity.draft_tokens:
        raise BackendError(f"{drafted} tokens in drafts of {capacity.draft_tokens}")


def output_count(row: Row) -> int:
    """How many logits the row wants: those of its targets, and with a sampler one and those of
    its draft."""
    targets = 0 if row.scoring is None else len(row.scoring.targets)
    return targets + (0 if row.sampler is None else 1 + len(row.draft))


def score_rows(rows: Sequence[Row], logits: LogitRows) -> list[int]:
    """Fill in what the rows with scoring ask for. logits [outputs, vocabulary] of the batch with
    these rows. Returns which outputs are those of the rows with a sampler."""
    sampled: list[int] = []
    at = 0
    for row in rows:
        end = at + output_count(row)
        if row.scoring is not None:
            targets, top = row.scoring.targets, row.scoring.top
            row.scoring.logprobs = [
                _target_logprobs(logits[at + offset], target, top)
                for offset, target in enumerate(targets)
            ]
            at += len(targets)
        sampled.extend(range(at, end))
        at = end
    return sampled


def _target_logprobs(logits: Logits, token: int, count: int) -> TokenLogprob:
    if np.isnan(logits.max()):
        return math.nan, ()
    return token_logprobs(logits, token, count)
