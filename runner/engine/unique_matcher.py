"""A matcher whose arrays keep their items apart.

Where only some alternatives want that, an answer has branches from the bracket of such an array on:
one in which the items must differ, and one that leaves only the alternatives in which they need
not, by a token that no model has (REPEATS_TOKEN). Behind the array one of them is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher

from runner.engine.unique_items import UniqueItems

MAX_BRANCHES = 16  # of arrays within arrays; more of them must have different items


@dataclass(frozen=True, slots=True)
class _Branch:
    matcher: LLMatcher
    items: UniqueItems


class UniqueMatcher:
    """A matcher of llguidance whose arrays keep their items apart; see LLMatcher."""

    def __init__(self, matcher: LLMatcher, items: UniqueItems, repeats: int) -> None:
        """Takes both over. repeats: the number of REPEATS_TOKEN."""
        self._branches = [_Branch(matcher, items)]
        self._repeats = repeats
        self._error = ""

    def compute_bitmask(self) -> bytes:
        """See LLMatcher."""
        masks = [one.matcher.compute_bitmask() for one in self._branches]
        found = np.zeros(len(masks[0]), np.uint8)
        for one, bits in zip(self._branches, masks, strict=True):
            if not one.matcher.is_error():
                found |= np.frombuffer(one.items.masked(bits), np.uint8)
        found[self._repeats >> 3] &= ~(1 << (self._repeats & 7)) & 255
        return found.tobytes() if found.any() else masks[0]

    def consume_token(self, token: int) -> bool:
        """See LLMatcher."""
        items = self._branches[0].items
        text = items.tokenizer.piece(token)
        if not text and items.prelude is not None:
            text = items.tokenizer.text(token).encode()
        found: dict[tuple[int, ...], _Branch] = {}
        for branch in self._branches:
            for after in self._behind(branch, text, [token]):
                # Where the same arrays may repeat, the first one allows all that later ones do.
                found.setdefault(after.items.repeating, after)
        # Masks may still be asked for behind a draft that is wrong.
        self._branches = list(found.values())[:MAX_BRANCHES] or self._branches[:1]
        return bool(found)

    def _behind(self, branch: _Branch, text: bytes, tokens: list[int]) -> list[_Branch]:
        """The branches behind a text, which the tokens make up. Uses the branch up."""
        matcher, items = branch.matcher, branch.items
        fresh = items.accept(text)
        others = [
            each
            for at, other in items.parted
            for each in self._repeating(matcher, other, text[:at], text[at:])
        ]
        if not fresh:
            self._error = "an array's items must differ, and there is no other one"
        elif matcher.try_consume_tokens(tokens) < len(tokens):
            self._error = matcher.get_error()
        else:
            others.insert(0, branch)
        return others

    def _repeating(
        self, matcher: LLMatcher, items: UniqueItems, start: bytes, rest: bytes
    ) -> list[_Branch]:
        """The branches behind a text with the start of an array whose items may be equal."""
        opening, more = items.vocabulary.spelled(start), items.vocabulary.spelled(rest)
        if opening is None or more is None:
            return []
        copy, opening = matcher.deep_copy(), [*opening, self._repeats]
        if copy.try_consume_tokens(opening) < len(opening):
            return []
        return self._behind(_Branch(copy, items), rest, more)

    def try_consume_tokens(self, tokens: list[int]) -> int:
        """See LLMatcher; of no use any more once it has taken fewer than all."""
        for count, token in enumerate(tokens):
            if not self.consume_token(token):
                return count
        return len(tokens)

    def compute_ff_tokens(self) -> list[int]:
        """See LLMatcher."""
        return self._branches[0].matcher.compute_ff_tokens() if len(self._branches) == 1 else []

    def is_stopped(self) -> bool:
        """See LLMatcher."""
        return all(one.matcher.is_stopped() for one in self._branches)

    def is_error(self) -> bool:
        """See LLMatcher."""
        return all(one.matcher.is_error() for one in self._branches)

    def get_error(self) -> str:
        """See LLMatcher."""
        return self._error

    def deep_copy(self) -> UniqueMatcher:
        """See LLMatcher."""
        copy = UniqueMatcher.__new__(UniqueMatcher)
        copy._branches = [
            _Branch(one.matcher.deep_copy(), one.items.copy()) for one in self._branches
        ]
        copy._repeats, copy._error = self._repeats, self._error
        return copy


Matcher = LLMatcher | UniqueMatcher
