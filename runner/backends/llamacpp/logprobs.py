"""Log-probabilities of the raw logits, as runner/engine/sampling.py defines them."""

from __future__ import annotations

import numpy as np

from runner.backends.llamacpp.shortlist import FloatRow, highest


def logprobs(
    logits: FloatRow, token: int, count: int
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log-probability (nats) of token, and the count most likely tokens with theirs, best
    first, from raw logits [vocabulary] without NaN."""
    peak = float(logits.max())
    norm = peak + float(np.log(np.exp(logits - np.float32(peak)).sum(dtype=np.float64)))
    best = highest(logits, count) if count else np.empty(0, np.int64)
    top = zip(best.tolist(), logits[best].tolist(), strict=True)
    return float(logits[token]) - norm, tuple((id, logit - norm) for id, logit in top)
