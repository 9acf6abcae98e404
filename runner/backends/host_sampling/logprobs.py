"""Log-probabilities of the raw logits, as runner/engine/sampling.py defines them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runner.backends.backend import Row
from runner.backends.host_sampling.top_k import FloatRow, top_k_ids

FloatRows = NDArray[np.float32]  # [rows, vocabulary]
MAX_SCORE_TOKENS = 64  # most logits of one step besides the sampled ones; 39 MB at 151,936 tokens


def token_logprobs(
    logits: FloatRow, token: int, count: int
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log-probability (nats) of token, and the count most likely tokens with theirs, best
    first, from raw logits [vocabulary] without NaN."""
    peak = float(logits.max())
    norm = peak + float(np.log(np.exp(logits - np.float32(peak)).sum(dtype=np.float64)))
    best = top_k_ids(logits, count) if count else np.empty(0, np.int64)
    top = zip(best.tolist(), logits[best].tolist(), strict=True)
    return float(logits[token]) - norm, tuple((id, logit - norm) for id, logit in top)


def score_rows(rows: Sequence[Row], logits: FloatRows) -> list[int]:
    """Fill in what the rows with scoring ask for. logits [outputs, vocabulary] of the batch with
    these rows. Returns which outputs are those of the rows with a sampler."""
    sampled: list[int] = []
    at = 0
    for row in rows:
        if row.scoring is not None:
            targets, top = row.scoring.targets, row.scoring.top
            row.scoring.found = [
                _target_logprobs(logits[at + offset], target, top)
                for offset, target in enumerate(targets)
            ]
            at += len(targets)
        if row.sampler is not None:
            sampled.extend(range(at, at + 1 + len(row.draft)))
            at += 1 + len(row.draft)
    return sampled


def _target_logprobs(
    logits: FloatRow, token: int, count: int
) -> tuple[float, tuple[tuple[int, float], ...]]:
    if np.isnan(logits.max()):
        return math.nan, ()
    return token_logprobs(logits, token, count)
