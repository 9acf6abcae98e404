"""Which tokens leave a full context so that an answer can continue: the older half of those after
the kept ones.

Owns which tokens leave and when an answer has continued for long enough. The context is recomputed
from the tokens that stay, which every backend can do and which gives the same numbers as a prompt
of these tokens; moving computed cells to other positions would be cheaper but less exact.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

MAX_CONTEXTS: Final = 10  # an answer without a limit ends after so many contexts,
MAX_SHIFTED: Final = 65_536  # or so many tokens, if its context is not longer


@dataclass(slots=True)
class ContextShift:
    """keep: tokens at the beginning that stay. context: the limit at a time. max_tokens: the limit
    of prompt and answer together. shifted: tokens that have left."""

    keep: int
    context: int
    max_tokens: int
    shifted: int = 0

    def allows(self, tokens: array[int]) -> bool:
        """Whether a sequence with these tokens may go on after a shift."""
        return len(tokens) + self.shifted < self.max_tokens

    def shortened(self, tokens: array[int]) -> tuple[array[int], int]:
        """The tokens that stay, and at how many the sequence is full or ends."""
        leaving = max(1, (len(tokens) - self.keep) // 2)
        kept = tokens[: self.keep] + tokens[self.keep + leaving :]
        self.shifted += leaving
        return kept, min(self.context, self.max_tokens - self.shifted)


def context_shift(
    keep: int, prompt_tokens: int, context: int, max_tokens: int | None
) -> ContextShift | None:
    """The shift of a request that wants max_tokens after its prompt (None: no limit); None: it ends
    before its context does. At most half of the context stays: more would leave nothing for an
    answer to go on in."""
    unlimited = max(context, min(MAX_CONTEXTS * context, MAX_SHIFTED))
    total = prompt_tokens + (unlimited if max_tokens is None else max_tokens)
    if total <= context:
        return None
    kept = min(prompt_tokens if keep < 0 else keep, prompt_tokens, context // 2)
    return ContextShift(kept, context, total)
