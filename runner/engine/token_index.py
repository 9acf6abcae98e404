"""Where in a text the same tokens stood before. Grows with the text, at a constant cost a token.

A place is that of what followed: the place 3 is after the first three tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

RUN_TOKENS = 3  # so many tokens find a place
MAX_LENGTH = 32  # of a match; longer ones are all the same
MAX_CONTEXT = 6  # tokens before a place that count for what follows it
_MAX_PLACES = 8  # the last ones that are looked at, of a run ...
_MAX_SINGLE_PLACES = 16  # ... and of a token
_BITS = 20  # of a token in a key; runs with equal keys are told apart by their tokens


class TokenIndex:
    """The places of every run of RUN_TOKENS and of every token, the last one first."""

    __slots__ = ("_before", "_before_single", "_last", "_single", "tokens")

    def __init__(self, tokens: array[int], count: int) -> None:
        """Of the first count tokens, 0.2 us each. tokens may grow: see extend."""
        self.tokens = tokens
        values = np.array(tokens[:count], np.int64)
        keys = (values[:-2] << (2 * _BITS)) + (values[1:-1] << _BITS) + values[2:]
        self._before = _places_before(keys, count, RUN_TOKENS)
        self._before_single = _places_before(values, count, 1)
        self._last = dict(zip(keys.tolist(), range(RUN_TOKENS, count + 1), strict=True))
        self._single = dict(zip(tokens[:count], range(1, count + 1), strict=True))

    def __len__(self) -> int:
        """How many tokens it has taken in."""
        return len(self._before) - 1

    def extend(self) -> None:
        """Take in the next token of the text."""
        tokens, place, before = self.tokens, len(self._before), 0
        self._before_single.append(self._single.get(tokens[place - 1], 0))
        self._single[tokens[place - 1]] = place
        if place >= RUN_TOKENS:
            key = _key(tokens, place)
            before = self._last.get(key, 0)
            self._last[key] = place
        self._before.append(before)

    def find(self, text: array[int], end: int) -> tuple[int, int]:
        """The place that has most of the tokens of text[:end] before it, of equal ones the last,
        and how many they are; (0, 0): there is none. Where text is the index's own, it must not
        have taken in text[end - 1] yet."""
        best = length = 0
        place = self._last.get(_key(text, end), 0) if end >= RUN_TOKENS else 0
        for _ in range(_MAX_PLACES):
            if not place or length == MAX_LENGTH:
                break
            if (found := common(self.tokens, place, text, end)) > length:
                best, length = place, found
            place = self._before[place]
        if not length and end and (place := self._single.get(text[end - 1], 0)):
            return place, common(self.tokens, place, text, end)
        return best, length

    def following(self, context: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The tokens after the last places of context's last tokens, the last place first, and how
        many of those stand before each: 1 to MAX_CONTEXT."""
        tokens, count, end = self.tokens, len(self), len(context)
        runs = self._last.get(_key(context, end), 0) if end >= RUN_TOKENS else 0
        seen: set[int] = set()
        for place, before, most in (
            (runs, self._before, _MAX_PLACES),
            (self._single.get(context[-1], 0), self._before_single, _MAX_SINGLE_PLACES),
        ):
            while place and most:
                most -= 1
                if place < count and place not in seen:
                    seen.add(place)
                    length = common(tokens, place, context, end, MAX_CONTEXT)
                    if length:
                        yield tokens[place], length
                place = before[place]


def _places_before(keys: NDArray[np.int64], count: int, length: int) -> array[int]:
    """For each place up to count the one before with the same key, 0 for none. The first key is
    that of the place length."""
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    before = np.zeros(count + 1, np.int32)
    before[order[1:][same] + length] = order[:-1][same] + length
    return array("i", before.tobytes())


def common(
    tokens: array[int], place: int, text: Sequence[int], end: int, most: int = MAX_LENGTH
) -> int:
    """How many tokens before place and at the end of text[:end] are the same, up to most."""
    count, limit = 0, min(place, end, most)
    while count < limit and tokens[place - 1 - count] == text[end - 1 - count]:
        count += 1
    return count


def _key(tokens: Sequence[int], end: int) -> int:
    return (tokens[end - 3] << (2 * _BITS)) + (tokens[end - 2] << _BITS) + tokens[end - 1]
