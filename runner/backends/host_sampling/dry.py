"""dry of one request: the runs that its history repeats, kept up to date token by token.

tests/dry_definition.py says what it means. llama.cpp's own sampler compares the whole history
again for every token and visits every logit: 0.3 ms at 151,936 logits and 4,000 tokens. Here a
token costs one step for each time it occurs in the window: 0.07 ms. Knows nothing of the other
penalties.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runner.types import SamplingParams

_MAX_LOG = 88.7228391  # of a float32
_FLAT_BASE = 1.000001
_MAX_PENALTY = float(np.finfo(np.float32).max)
_MANY = 16  # tokens at once: a prompt
_MAX_BREAKER_TOKENS = 64  # tokens; those of 40 bytes have fewer


class DryPenalty:
    """The tokens seen, and where before what ends them stands too."""

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._tokens: list[int] = []
        self._occurrences: dict[int, list[int]] = {}  # of a token, ascending
        self._runs: dict[int, int] = {}  # place of an earlier end of a run: its length
        self._breakers = params.dry_breakers
        base = params.dry_base
        self._max_power = int(_MAX_LOG / math.log(base)) if base > _FLAT_BASE else None

    def extend(self, tokens: Sequence[int]) -> None:
        """Let newer tokens in."""
        if len(tokens) > _MANY:
            self._extend_by_many(tokens)
            return
        for token in tokens:
            before = self._occurrences.setdefault(token, [])
            start = self._window_start(len(self._tokens) + 1)
            if before and before[0] < start - 1024:
                del before[: bisect_left(before, start)]
            runs = self._runs
            self._runs = {at: runs.get(at - 1, 0) + 1 for at in before}
            before.append(len(self._tokens))
            self._tokens.append(token)

    def _extend_by_many(self, tokens: Sequence[int]) -> None:
        """As extend, in time in proportion to the window, whatever is repeated."""
        self._tokens += tokens
        start = self._window_start(len(self._tokens))
        self._occurrences = {}
        for at in range(start, len(self._tokens)):
            self._occurrences.setdefault(self._tokens[at], []).append(at)
        last = len(self._tokens) - 1
        lengths = prefix_matches(self._tokens[:start:-1] + self._tokens[start : start + 1])
        self._runs = {last - back: n for back, n in enumerate(lengths) if n and back}

    def penalties(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The tokens that would continue a run, and what their logits lose."""
        tokens = self._tokens
        start, max_run = self._window_start(len(tokens)), self._run_limit()
        longest_runs: dict[int, int] = {}
        allowed_length = self._params.dry_allowed_length
        for at, length in self._runs.items():
            run = min(length, at - start + 1, max_run)
            if run >= allowed_length and run > longest_runs.get(tokens[at + 1], 0):
                longest_runs[tokens[at + 1]] = run
        amounts = {
            token: self._penalty(run)
            for token, run in longest_runs.items()
            if () not in self._breakers.get(token, ())
        }
        size = len(amounts)
        values = np.fromiter(amounts.values(), np.float32, size)
        return np.fromiter(amounts, np.int64, size), values

    def _window_start(self, size: int) -> int:
        """Where the window begins when there are size tokens."""
        last = self._params.dry_penalty_last_n
        return 0 if last < 0 else max(0, size - last)

    def _run_limit(self) -> int:
        """Tokens after the last breaker in the window."""
        tokens, end = self._tokens, len(self._tokens)
        start = self._window_start(end)
        # The longest run bounds it: what lies further back changes nothing
        first = max(start, end - max(self._runs.values(), default=0) - _MAX_BREAKER_TOKENS)
        for at in range(end - 1, first - 1, -1):
            for tail in sorted(self._breakers.get(tokens[at], ()), key=len, reverse=True):
                if tuple(tokens[at + 1 : at + 1 + len(tail)]) == tail:
                    return end - at - 1 - len(tail)
        return end - start

    def _penalty(self, run: int) -> float:
        power = run - self._params.dry_allowed_length
        if self._max_power is not None:
            power = min(power, self._max_power)
        return min(self._params.dry_multiplier * self._params.dry_base**power, _MAX_PENALTY)


def prefix_matches(tokens: Sequence[int]) -> list[int]:
    """For each place in tokens, how many tokens from there on are those at the beginning: the
    Z-algorithm (Gusfield, Algorithms on Strings, Trees and Sequences, 1997)."""
    size = len(tokens)
    found = [size] * size
    left = right = 0  # the match found that reaches furthest
    for at in range(1, size):
        length = min(right - at, found[at - left]) if at < right else 0
        while at + length < size and tokens[length] == tokens[at + length]:
            length += 1
        found[at] = length
        if at + length > right:
            left, right = at, at + length
    return found


def create_dry(params: SamplingParams) -> DryPenalty | None:
    """None: it would change nothing."""
    off = params.dry_multiplier == 0 or params.dry_base < 1 or params.dry_penalty_last_n == 0
    return None if off else DryPenalty(params)
