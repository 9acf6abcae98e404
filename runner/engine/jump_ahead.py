"""Proposals from a grammar: tokens that it forces, and what the answer wrote in similar places
before.

Between the tokens that a grammar forces there are those that it almost forces, mostly the white
space of JSON. An answer that has put a space after one colon will put one after the next. Knows no
backend and no sequences.
"""

from __future__ import annotations

from runner.engine.odds import Odds, Proposals
from runner.engine.step_costs import MIN_ODDS
from runner.engine.unique_matcher import Matcher

_FORCED = -1  # stands for the last one of several forced tokens, whatever it is
_FORCED_ODDS = 0.9


class JumpAhead:
    """What one answer has written so far."""

    __slots__ = ("_forced", "_habits", "_last")

    def __init__(self) -> None:
        self._habits: dict[int, tuple[int, int, int]] = {}  # what followed, how often right, of all
        self._last = _FORCED
        self._forced = Odds([_FORCED_ODDS])

    def observe(self, matcher: Matcher, token: int) -> None:
        """Such a token comes next in the answer, which is where matcher is."""
        forced: list[int] = matcher.compute_ff_tokens()
        if forced:
            self._forced.observe(0, forced[0] == token)
        if forced and forced[0] == token:
            self._last = _FORCED
            return
        known, right, count = self._habits.get(self._last, (token, 0, 0))
        self._habits[self._last] = (token, right + (known == token and count > 0), count + 1)
        self._last = token

    def propose(self, matcher: Matcher, past: Proposals, limit: int) -> Proposals:
        """At most limit tokens that the grammar allows next. past: what followed before. Advances
        matcher, which must be a copy."""
        found: list[int] = []
        odds: list[float] = []
        last, reach = self._last, 1.0
        while len(found) < limit:
            forced: list[int] = matcher.compute_ff_tokens()[: limit - len(found)]
            if forced:
                new, one, last = forced, self._forced.of(0), _FORCED
            else:
                token, one = self._likeliest(last, found, past)
                new, last = [token], token
            reach *= one ** len(new)
            if reach < MIN_ODDS or matcher.try_consume_tokens(new) < len(new):
                break
            found += new
            odds += [one] * len(new)
            if matcher.is_stopped():  # the last one needs no proposal: it ends the answer
                return found[:-1], odds[:-1]
        return found, odds

    def _likeliest(self, last: int, found: list[int], past: Proposals) -> tuple[int, float]:
        token, right, count = self._habits.get(last, (0, 0, 0))
        odds = (right + 1) / (count + 1) if count > 0 else 0.0
        at = len(found)
        if at < len(past[0]) and past[0][:at] == found and past[1][at] > odds:
            return past[0][at], past[1][at]
        return token, odds
