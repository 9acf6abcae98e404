"""What dry means (Don't Repeat Yourself, p-e-w, 2024): its penalties, written to be read.

history is what dry looks at, the last dry_penalty_last_n tokens. A token that would continue a run
which ended history before, as the same tokens somewhere earlier in history, has a run of n tokens
already; the longest one counts. Where n >= dry_allowed_length its logit is lowered by
dry_multiplier * dry_base ** (n - dry_allowed_length). No run reaches back across the last breaker
in history, and a breaker of one token is never penalised. This is llama.cpp's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from runner.types import SamplingParams

_LARGEST_LOG = 88.7228391  # of a float32; more than dry_base to the power of it is cut
_FLAT_BASE = 1.000001  # at and below it, the power is never cut

Breakers = Mapping[int, tuple[tuple[int, ...], ...]]


def dry_penalties(params: SamplingParams, history: Sequence[int]) -> dict[int, float]:
    """What dry subtracts from the logits of tokens, each greater than 0."""
    if params.dry_multiplier == 0 or params.dry_base < 1:
        return {}
    last = params.dry_penalty_last_n
    seen = list(history if last < 0 else history[len(history) - min(last, len(history)) :])
    limit = reach(seen, params.dry_breakers)
    runs: dict[int, int] = {}
    for end in range(1, len(seen)):  # the run before seen[end] and the one at the end
        length = min(_common_suffix(seen, end), limit)
        if length >= params.dry_allowed_length and length > runs.get(seen[end], 0):
            runs[seen[end]] = length
    return {
        token: penalty(params, length)
        for token, length in runs.items()
        if () not in params.dry_breakers.get(token, ())
    }


def reach(seen: Sequence[int], breakers: Breakers) -> int:
    """How many tokens at the end of seen come after the last breaker in it."""
    for at in range(len(seen) - 1, -1, -1):
        following = seen[at + 1 :]
        fits = [t for t in breakers.get(seen[at], ()) if tuple(following[: len(t)]) == t]
        if fits:
            return len(following) - max(map(len, fits))
    return len(seen)


def penalty(params: SamplingParams, length: int) -> float:
    """What a run of length tokens costs the one that would continue it."""
    power = length - params.dry_allowed_length
    if params.dry_base > _FLAT_BASE:
        power = min(power, int(_LARGEST_LOG / math.log(params.dry_base)))
    return float(params.dry_multiplier * params.dry_base**power)


def _common_suffix(seen: Sequence[int], end: int) -> int:
    """How many tokens before end are those at the end of seen."""
    length = 0
    while length < end and seen[end - 1 - length] == seen[-1 - length]:
        length += 1
    return length
