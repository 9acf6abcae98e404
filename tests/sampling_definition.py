"""What sampling means in hearth: the order of the steps, their defaults, their tie rules.

This module is the definition, written in plain NumPy to be read. It draws no tokens in
production: each backend has its own native sampler and is tested against distribution() here.
It knows nothing of sequences or of batches.

A token is chosen from the logits [vocabulary] of the last position, in this order:

 1. logit_bias   logit += bias, for each pair; pairs of the same token add up. The bias -inf bans.
 2. penalties    over the last repeat_last_n tokens of history (prompt and output together;
                 0: none, -1: all of it). For a token that occurs n > 0 times there:
                 logit = logit * repeat_penalty if logit <= 0, else logit / repeat_penalty; then
                 logit -= n * frequency_penalty + presence_penalty. With sampled_penalties, n of
                 these two counts all of the output and nothing of the prompt.
 3. dry          runs of tokens that history repeats are penalised: see tests/dry_definition.py.
                 dry_multiplier 0: off.
 4. watermark    where it is on: logit += watermark_delta, for the tokens that are green after the
                 last one of history: see runner/watermark.py. samplers does not switch it off.
 5. greedy       temperature <= 0: the highest logit wins and nothing below runs.
 6. mirostat     1 or 2: steps 7 to 12 do not run; see below.
 7. top_n_sigma  tokens with logit >= highest logit - top_n_sigma * s, with s the standard deviation
                 of the finite logits. 0 or less: all.
 8. top_k        the k highest logits stay. 0 or less: all.
 9. typical_p    with p the softmax of what is left and H its entropy, tokens in ascending
                 order of |-log p - H|: the shortest run whose mass is greater than typical_p.
                 1 or more: all.
10. top_p        tokens by descending probability: the shortest run whose mass is at least top_p.
                 1 or more: all. 0: the most likely one.
11. min_p        tokens with logit >= highest logit + log(min_p), that is p >= min_p * highest p.
                 0 or less: all.
12. xtc          with the probability xtc_probability: of the tokens with p >= xtc_threshold all but
                 the least likely go. A threshold above 0.5 or fewer than two such tokens: all stay.
13. temperature  logit /= temperature. With dynatemp_range > 0 the divisor is, for the n tokens left
                 with finite logits and the entropy H (nats) of their softmax, n > 1, between
                 low = max(0, temperature - range) and high = temperature + range:
                 low + (high - low) * (H / log n) ** dynatemp_exponent; not with mirostat.
14. draw         one token from the softmax of what is left.

samplers names those of 7 to 13 that run, in another order; the others do not, and each computes
with what the ones before it made of the logits, heated ones too.

Every filter leaves at least one token, and each computes its softmax anew over the tokens that
the filters before it left, at temperature 1 unless samplers says otherwise. This is llama.cpp's
default chain with logit_bias before it.

Mirostat (Basu et al., 2020) draws from the softmax at the temperature, cut to the tokens whose
surprise fits its state mu, in bits, which is 2 * mirostat_tau at first: see surprise_limit. After
each draw of a token of probability p among those left: mu -= mirostat_eta * (-log2 p -
mirostat_tau).

Ties: where logits are equal, the lower token id counts as the higher logit. A backend may break
ties at the border of a filter otherwise (its sort need not be stable), but not for greedy.

Log-probabilities are of the softmax of the raw logits: before the bias, the penalties and
everything else, so that they describe the model and not the request's settings.

Seeds: one random stream per request, seeded with params.seed and used for nothing else. The
streams of two backends differ; the same seed on the same backend and machine gives the same
output, as long as the logits are the same: a request that is computed in one batch with others,
or from a cached prefix, can get logits that differ in the last bits, and then another token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from runner.types import SamplingParams
from runner.watermark import is_green
from tests.dry_definition import dry_penalties

Logits = NDArray[np.float64]  # [vocabulary], or [candidates] inside the filters
Ids = NDArray[np.int64]  # token ids [candidates], by descending logit
Filter = Callable[[Ids, Logits, SamplingParams], Ids]


def sample(
    logits: NDArray[np.floating],
    params: SamplingParams,
    history: Sequence[int],
    rng: np.random.Generator,
) -> int:
    """The chosen token. logits [vocabulary]; history: prompt and output so far. rng is not
    touched when the choice is greedy."""
    adjusted = adjust(logits, params, history)
    if params.temperature <= 0:
        return int(np.argmax(adjusted))
    ids = candidates(adjusted, params)
    if not params.mirostat and rng.random() < params.xtc_probability:
        ids = xtc(ids, adjusted[ids], params)
    mass = np.cumsum(softmax(_heated(adjusted[ids], params)))
    index = int(np.searchsorted(mass, rng.random() * mass[-1]))
    return int(ids[min(index, len(ids) - 1)])


def distribution(
    logits: NDArray[np.floating], params: SamplingParams, history: Sequence[int]
) -> Logits:
    """The probability of every token [vocabulary] to be the one that sample() returns."""
    adjusted = adjust(logits, params, history)
    result = np.zeros(len(adjusted))
    if params.temperature <= 0:
        result[int(np.argmax(adjusted))] = 1.0
        return result
    ids = candidates(adjusted, params)
    if params.samplers is not None and not params.mirostat:
        return _in_order(adjusted, params)
    chance = params.xtc_probability if not params.mirostat else 0.0
    for kept, share in ((ids, 1 - chance), (xtc(ids, adjusted[ids], params), chance)):
        if share > 0:
            result[kept] += share * softmax(_heated(adjusted[kept], params))
    return result


def _in_order(adjusted: Logits, params: SamplingParams) -> Logits:
    """The probability of every token where params.samplers are to run."""
    result = np.zeros(len(adjusted))
    for acts, share in ((False, 1 - params.xtc_probability), (True, params.xtc_probability)):
        ids = by_logit(adjusted)
        logits = adjusted[ids]
        for name in params.samplers or ():
            if name == "temperature":
                logits = _heated(logits, params)
            elif name != "xtc" or acts:
                kept = _BY_NAME[name](np.arange(len(ids)), logits, params)
                ids, logits = ids[kept], logits[kept]
        result[ids] += share * softmax(logits)
    return result


def logprobs(
    logits: NDArray[np.floating], token: int, count: int
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log-probability (nats) of token and the count most likely tokens with theirs, best
    first, of raw logits [vocabulary]."""
    raw = np.asarray(logits, dtype=np.float64)
    peak = raw.max()
    nats = raw - (peak + np.log(np.exp(raw - peak).sum()))
    best = by_logit(raw)[:count]
    return float(nats[token]), tuple((int(id), float(nats[id])) for id in best)


def adjust(
    logits: NDArray[np.floating],
    params: SamplingParams,
    history: Sequence[int],
    prompt_tokens: int = 0,
) -> Logits:
    """Steps 1 to 4: a copy of logits with what bias, penalties and watermark make of them.
    prompt_tokens: of history."""
    result = np.array(logits, dtype=np.float64)
    for token, bias in params.logit_bias:
        result[token] += bias
    window = penalty_window(params, history)
    at = result[tokens := np.unique(window)]
    result[tokens] = np.where(at <= 0, at * params.repeat_penalty, at / params.repeat_penalty)
    counted = history[prompt_tokens:] if params.sampled_penalties else window
    tokens, counts = np.unique(np.asarray(counted, dtype=np.int64), return_counts=True)
    result[tokens] -= counts * params.frequency_penalty + params.presence_penalty
    for token, amount in dry_penalties(params, history).items():
        result[token] -= amount
    if params.watermark and history:
        green = [
            is_green(history[-1], token, params.watermark_gamma) for token in range(len(result))
        ]
        result[green] += params.watermark_delta
    return result


def penalty_window(params: SamplingParams, history: Sequence[int]) -> Ids:
    """The tokens of history that the penalties look at, oldest first."""
    last = params.repeat_last_n
    window = history if last < 0 else history[len(history) - min(last, len(history)) :]
    return np.asarray(window, dtype=np.int64)


def candidates(adjusted: Logits, params: SamplingParams) -> Ids:
    """Steps 6 to 11: the tokens that may be drawn, by descending logit; of mirostat, first."""
    ids = by_logit(adjusted)
    if params.mirostat:
        hot = heat(adjusted[ids], params.temperature)
        return ids[: surprise_limit(hot, params, 2 * params.mirostat_tau)]
    for keep in FILTERS:
        ids = keep(ids, adjusted[ids], params)
    return ids


def by_logit(logits: Logits) -> Ids:
    """All token ids by descending logit, equal ones by ascending id."""
    return np.argsort(-logits, kind="stable")


def heat(logits: Logits, temperature: float) -> Logits:
    """Step 13, up to a constant: the highest logit becomes 0, so that the smallest temperature
    gives -inf for the others and never inf - inf."""
    with np.errstate(over="ignore"):
        return np.asarray((logits - logits.max()) / temperature, dtype=np.float64)


def dynamic_temperature(logits: Logits, params: SamplingParams) -> float:
    """The divisor of step 13, at least 1e-300 (Dynamic Temperature Sampling, kalomaze, 2023)."""
    finite = logits[np.isfinite(logits)]
    if params.dynatemp_range <= 0 or len(finite) < 2:
        return params.temperature
    p = softmax(finite)
    p = p[p > 0]
    share = float(-(p * np.log(p)).sum() / np.log(len(finite)))
    low = max(0.0, params.temperature - params.dynatemp_range)
    high = params.temperature + params.dynatemp_range
    moved = low + (high - low) * max(share, 0.0) ** params.dynatemp_exponent
    return float(max(moved, 1e-300))


def _heated(logits: Logits, params: SamplingParams) -> Logits:
    fixed = params.mirostat > 0
    return heat(logits, params.temperature if fixed else dynamic_temperature(logits, params))


def softmax(logits: Logits) -> Logits:
    """exp(logits), scaled to the sum 1."""
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum(), dtype=np.float64)


def surprise_limit(logits: Logits, params: SamplingParams, mu: float) -> int:
    """How many of the heated, descending logits mirostat keeps at the state mu.

    Version 2: those whose surprise -log2 p is at most mu. Version 1: as many as a Zipf law with
    the exponent of the 100 most likely ones needs for that surprise.
    """
    p = softmax(logits)
    ranks = np.arange(min(100, len(p)) - 1)
    steps = np.log((ranks + 2) / (ranks + 1))
    with np.errstate(all="ignore"):
        if params.mirostat == 2:
            return max(1, int((-np.log2(p) <= mu).sum()))
        s = (steps * np.log(p[ranks] / p[ranks + 1])).sum() / (steps**2).sum()
        epsilon = s - 1
        k = (epsilon * 2**mu / (1 - np.float64(len(p)) ** -epsilon)) ** (1 / s)
    return max(1, min(int(k), len(p))) if np.isfinite(k) else 1


def top_n_sigma(ids: Ids, logits: Logits, params: SamplingParams) -> Ids:
    """Step 7 (Tang et al., Top-n-sigma: Not All Logits Are You Need, 2024)."""
    if params.top_n_sigma <= 0:
        return ids
    floor = logits[0] - params.top_n_sigma * logits[np.isfinite(logits)].std()
    return ids[np.flatnonzero(logits >= floor)]


def xtc(ids: Ids, logits: Logits, params: SamplingParams) -> Ids:
    """Step 12 where it acts (Exclude Top Choices, p-e-w, 2024)."""
    above = int((softmax(logits) >= params.xtc_threshold).sum())
    return ids[above - 1 :] if params.xtc_threshold <= 0.5 and above > 1 else ids


def top_k(ids: Ids, _logits: Logits, params: SamplingParams) -> Ids:
    """Step 8."""
    return ids[: params.top_k] if params.top_k > 0 else ids


def typical_p(ids: Ids, logits: Logits, params: SamplingParams) -> Ids:
    """Step 9 (Meister et al., Locally Typical Sampling, 2022)."""
    if params.typical_p >= 1:
        return ids
    p = softmax(logits)
    surprise = -np.log(np.where(p > 0, p, 1e-300))
    order = np.argsort(np.abs(surprise - (p * surprise).sum()), kind="stable")
    inside = np.cumsum(p[order]) <= params.typical_p
    return ids[np.sort(order[: int(inside.sum()) + 1])]


def top_p(ids: Ids, logits: Logits, params: SamplingParams) -> Ids:
    """Step 10 (Holtzman et al., The Curious Case of Neural Text Degeneration, 2019)."""
    if params.top_p >= 1:
        return ids
    inside = np.cumsum(softmax(logits)) < params.top_p
    return ids[: int(inside.sum()) + 1]


def min_p(ids: Ids, logits: Logits, params: SamplingParams) -> Ids:
    """Step 11 (Nguyen et al., Turning Up the Heat: Min-p Sampling, 2024)."""
    if params.min_p <= 0:
        return ids
    threshold = logits[0] + np.log(min(params.min_p, 1.0))
    return ids[np.flatnonzero(logits >= threshold)]


FILTERS: tuple[Filter, ...] = (top_n_sigma, top_k, typical_p, top_p, min_p)
_BY_NAME: dict[str, Filter] = {each.__name__: each for each in (*FILTERS, xtc)}
