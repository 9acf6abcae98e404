"""Images among a sequence's tokens.

A part of an image stands in the array of tokens as a run of negative numbers, each one less than
the one before. The same part has the same run in all sequences, different parts have runs that are
neither equal nor next to each other; so comparing tokens compares images, and where a part begins
can be seen from the numbers. A part is in the cache as a whole or not at all.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping

from runner.backends.backend import ImagePart

ImageParts = Mapping[int, ImagePart]  # by the first number of their run


def whole_image_length(tokens: array[int], length: int) -> int:
    """length, or less: where the part of an image begins that it would cut."""
    if length >= len(tokens) or tokens[length] >= 0:
        return length
    while length > 0 and tokens[length - 1] == tokens[length] + 1:
        length -= 1
    return length


class SequenceImages:
    """The images of one sequence: where their parts stand in it."""

    __slots__ = ("_parts", "_starts")

    def __init__(self, tokens: array[int], parts: ImageParts) -> None:
        """Raises ValueError when tokens hold a negative number that is of none of parts."""
        self._parts: dict[int, ImagePart] = {}  # by where they stand
        at = 0
        for at, token in enumerate(tokens):
            if token < 0 and (at == 0 or tokens[at - 1] != token + 1):
                part = parts.get(token)
                if part is None or not _stands(tokens, at, part.tokens):
                    raise ValueError(f"token {token} at {at} begins no part of an image")
                self._parts[at] = part
        self._starts = list(self._parts)
        covered = sum(part.tokens for part in self._parts.values())
        if covered != sum(token < 0 for token in tokens):
            raise ValueError("the negative tokens are not those of the images")

    def at(self, start: int) -> ImagePart | None:
        """The part that begins at start."""
        return self._parts.get(start)

    def portion(self, start: int, budget: int, free: int, alone: bool) -> int:
        """How many tokens from start on may be computed together, when free cells there are so many
        and budget is less: text up to the next part, or a part. One that is larger than budget
        only if nothing else is computed (alone); 0: nothing may."""
        part = self._parts.get(start)
        if part is not None:
            fits = part.tokens <= free if alone else part.tokens <= min(budget, free)
            return part.tokens if fits else 0
        place = bisect_left(self._starts, start)
        until = self._starts[place] - start if place < len(self._starts) else budget
        return min(budget, free, until)


def _stands(tokens: array[int], start: int, count: int) -> bool:
    first = tokens[start]
    run = array("i", range(first, first - count, -1))
    return tokens[start : start + count] == run
