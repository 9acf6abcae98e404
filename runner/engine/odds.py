"""How often proposals of each kind were accepted."""

from __future__ import annotations

from collections.abc import Sequence

Proposals = tuple[list[int], list[float]]  # tokens, and the odds of each if those before are right

_PRIOR = 6.0  # weight of what was known before, in observations
_MEMORY = 256.0  # observations after which the older ones fade


class Odds:
    """The share of right proposals by their kind, a number."""

    __slots__ = ("_count", "_first", "_right")

    def __init__(self, first: Sequence[float] | Odds) -> None:
        """first: what is assumed until observations say otherwise; as odds of more than this, they
        learn from it too."""
        self._first = first
        kinds: int = len(first._count) if isinstance(first, Odds) else len(first)
        self._right: list[float] = [0.0] * kinds
        self._count: list[float] = [0.0] * kinds

    def observe(self, kind: int, right: bool) -> None:
        """One of this kind was right, or not."""
        if self._count[kind] >= _MEMORY:
            self._count[kind] /= 2
            self._right[kind] /= 2
        self._count[kind] += 1
        self._right[kind] += right
        if isinstance(self._first, Odds):
            self._first.observe(kind, right)

    def of(self, kind: int) -> float:
        """That one of this kind is right."""
        first = self._first
        prior = first.of(kind) if isinstance(first, Odds) else first[kind]
        return (self._right[kind] + _PRIOR * prior) / (self._count[kind] + _PRIOR)
