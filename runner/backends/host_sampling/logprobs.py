"""Log-probabilities of the raw logits, as tests/sampling_definition.py defines them."""

from __future__ import annotations

import numpy as np

from runner.backends.backend import TokenLogprob
from runner.backends.host_sampling.logits import Logits, TokenIds
from runner.backends.host_sampling.top_k import top_k_ids

MAX_SCORE_TOKENS = 64  # most logits of one step besides the sampled ones; 39 MB at 151,936 tokens


def token_logprobs(logits: Logits, token: int, count: int) -> TokenLogprob:
    """The log-probability (nats) of token, and the count most likely tokens with theirs, best
    first, from raw logits [vocabulary] without NaN."""
    peak = float(logits.max())
    norm = peak + float(np.log(np.exp(logits - np.float32(peak)).sum(dtype=np.float64)))
    best = top_k_ids(logits, count) if count else np.empty(0, np.int64)
    top = zip(best.tolist(), logits[best].tolist(), strict=True)
    return float(logits[token]) - norm, tuple((id, logit - norm) for id, logit in top)


def drawn_logprobs(ids: TokenIds, weights: Logits, token: int, count: int) -> TokenLogprob:
    """As token_logprobs, of the tokens ids that token was drawn from, by their weights, which are
    0 or more. Those of 0 are not among the most likely ones."""
    nats = np.full(len(ids), -np.inf, np.float64)
    np.log(weights, out=nats, where=weights > 0)
    nats -= np.log(weights.sum(dtype=np.float64))
    best = np.argsort(-nats, kind="stable")[:count]
    top = zip(ids[best].tolist(), nats[best].tolist(), strict=True)
    (place,) = np.flatnonzero(ids == token)
    return float(nats[place]), tuple((id, value) for id, value in top if value > -np.inf)
