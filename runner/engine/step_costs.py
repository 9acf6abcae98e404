"""What a step of so many tokens costs, and which proposals are worth verifying.

Costs are relative to a step of one token. They are learned from pairs of steps, one after the
other: what else the machine does, and how long the contexts are, then changes both alike. Knows no
sequences.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

MIN_ODDS = 0.05  # proposals that are less likely to be needed are not looked at
MARGIN = 1.1  # a token must be so much likelier than it need be
_KNOTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_TOKEN_COST = 0.08  # of each token more, until it is measured: two Zen 5 cores have 0.06 to 0.11
_SMOOTHING = 0.08  # of the newest pair of steps in what is known
_MAX_ERROR = 0.5  # of the logarithm of a pair: a step that something interrupted counts no more
_NEWEST_WEIGHT = 0.1  # of the newest step in the time of one token


class StepCosts:
    """The cost of steps by their tokens."""

    def __init__(self) -> None:
        self.token_s: float | None = None  # a step of one token
        self._measured = [1]  # knots, ascending, with the cost at each
        self._at = [1.0]
        self._pairs = dict.fromkeys(_KNOTS, 0)
        self._previous: tuple[int, float] | None = None
        self._table = [1.0]

    def cost(self, tokens: int) -> float:
        """Of a step of so many tokens."""
        table = self._table
        while len(table) <= tokens:
            table.append(self._interpolated(len(table)))
        return table[tokens]

    def observe(self, tokens: int, seconds: float) -> None:
        """A step took so long."""
        previous, self._previous = self._previous, (tokens, seconds)
        token_s = seconds / self.cost(tokens)
        known = token_s if self.token_s is None else self.token_s
        self.token_s = known + _NEWEST_WEIGHT * (token_s - known)
        if previous is None or previous[0] == tokens or min(seconds, previous[1]) <= 0:
            return
        expected = self.cost(tokens) / self.cost(previous[0])
        error = math.log(seconds / previous[1] / expected)
        error = max(-_MAX_ERROR, min(error, _MAX_ERROR))
        self._correct(tokens, error)
        self._correct(previous[0], -error)
        del self._table[1:]

    def _correct(self, tokens: int, error: float) -> None:
        knot = min(_KNOTS, key=lambda knot: abs(knot - tokens))
        if knot == 1:
            return
        at = bisect_left(self._measured, knot)
        if not self._pairs[knot]:
            self._at.insert(at, self._interpolated(knot))
            self._measured.insert(at, knot)
        self._pairs[knot] += 1
        weight = max(0.5 / self._pairs[knot], _SMOOTHING)
        self._at[at] = max(1.0, self._at[at] * math.exp(weight * error))

    def _interpolated(self, tokens: int) -> float:
        """Between what was measured; beyond it a token costs what it does on the way there."""
        knots, costs = self._measured, self._at
        at = bisect_right(knots, tokens) - 1
        slope = _TOKEN_COST
        if at + 1 < len(knots):
            slope = (costs[at + 1] - costs[at]) / (knots[at + 1] - knots[at])
        elif at:
            slope = (costs[at] - 1) / (knots[at] - 1)
        return costs[at] + slope * (tokens - knots[at])


def choose(costs: StepCosts, odds: Sequence[Sequence[float]], max_total: int) -> list[int]:
    """For each sequence how many of its proposals a step shall verify to give most tokens in its
    time. odds: that each proposal is right if those before it are. max_total: of all together."""
    sequences = len(odds)
    chosen, best = [0] * sequences, [0] * sequences
    reach = [own[0] if own else 0.0 for own in odds]  # that the next one of each is needed
    expected = float(sequences)
    best_rate = expected / costs.cost(sequences)
    for total in range(sequences + 1, sequences + max_total + 1):
        at = max(range(sequences), key=reach.__getitem__)
        if reach[at] < MIN_ODDS:
            break
        expected += reach[at] / MARGIN
        chosen[at] += 1
        rest = odds[at]
        reach[at] *= rest[chosen[at]] if chosen[at] < len(rest) else 0.0
        rate = expected / costs.cost(total)
        if rate > best_rate:
            best_rate, best = rate, list(chosen)
    return best
