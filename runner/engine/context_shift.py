"""What leaves a full context so that an answer may go on: the older half of the tokens after those
that stay.

Owns which tokens leave and when an answer has gone on for long enough. The rest is computed anew
from the tokens that stay, which every backend can do and gives the numbers that a prompt of these
tokens gives; moving computed cells to other positions would be cheaper and less exact.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

MAX_CONTEXTS: Final = 10  # an answer without a limit ends after so many contexts


@dataclass(slots=True)
class ContextShift:
    """keep: tokens at the beginning that stay. context: the most there may be at a time. most:
    tokens of prompt and answer after which there is no more; gone: how many have left."""

    keep: int
    context: int
    most: int
    gone: int = 0

    def helps(self, tokens: array[int]) -> bool:
        """Whether a sequence with these tokens may go on, room being made."""
        return len(tokens) + self.gone < self.most

    def shortened(self, tokens: array[int]) -> tuple[array[int], int]:
        """The tokens that stay, and at how many the sequence is full or ends."""
        leaving = max(1, (len(tokens) - self.keep) // 2)
        kept = tokens[: self.keep] + tokens[self.keep + leaving :]
        self.gone += leaving
        return kept, min(self.context, self.most - self.gone)


def context_shift(keep: int, prompt: int, context: int, wanted: int | None) -> ContextShift | None:
    """The shift of a request with a prompt of so many tokens, which wants so many more; None: it
    ends before its context does. At most half of the context stays: more would leave no room for
    an answer to go on in."""
    most = prompt + (MAX_CONTEXTS * context if wanted is None else wanted)
    if most <= context:
        return None
    return ContextShift(min(prompt if keep < 0 else keep, prompt, context // 2), context, most)
