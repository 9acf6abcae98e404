"""Applies the merges of a BPE tokenizer to a word.

Knows no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

Merge = tuple[str, str]
_MAX_WORD_CHARS: Final = 256  # characters; a word costs the square of its length


def first_unreachable(tokens: Iterable[str], merges: Sequence[Merge]) -> str | None:
    """The first token that the merges do not make of its characters, or that is too long to
    try; None when they make all."""
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    for token in tokens:
        if len(token) > _MAX_WORD_CHARS or len(apply_merges(token, ranks)) != 1:
            return token
    return None


def apply_merges(word: str, ranks: dict[Merge, int]) -> list[str]:
    """The parts of a word after all merges, the lowest rank first and the leftmost of equals."""
    parts = list(word)
    while len(parts) > 1:
        pairs = pairwise(parts)
        best = min(
            ((ranks[pair], place) for place, pair in enumerate(pairs) if pair in ranks),
            default=None,
        )
        if best is None:
            break
        place = best[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts
