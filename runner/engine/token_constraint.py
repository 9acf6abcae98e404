"""Which tokens a request allows next, by tokens alone: what may be generated at all, before the
answer may end, after what stands there, and where its reasoning has had its budget.

Owns one mask for each step of one request, together with that of its grammar. Both backends take
masks, so none of this is theirs. Knows no logits, texts of requests or templates.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runner.engine.sequence import GrammarMatcher
from runner.types import SamplingParams

Bits = NDArray[np.uint8]  # [4 * ceil(vocabulary / 32)], the least significant bit first
_MAX_BLANKS = 512  # characters before what may open reasoning


@dataclass(frozen=True, slots=True)
class ReasoningBudget:
    """max_tokens of reasoning, then closing is written. opening and end: as bytes of the text.
    opened: the prompt has begun it."""

    max_tokens: int
    opening: bytes
    end: bytes
    closing: tuple[int, ...]
    opened: bool
    piece: Callable[[int], bytes]


class TokenConstraint(GrammarMatcher):
    """What one request allows. matcher: of its grammar, where it has one."""

    def __init__(
        self,
        params: SamplingParams,
        vocabulary: int,
        prompt: Sequence[int],
        budget: ReasoningBudget | None = None,
        matcher: GrammarMatcher | None = None,
    ) -> None:
        """Looks at the whole prompt where no run of tokens may occur twice."""
        self._params = params
        self._matcher = matcher
        self._allowed = _allowed_bits(params.allowed_token_ids, vocabulary)
        self._left = params.min_tokens  # before the answer may end
        self._tail: list[int] = list(prompt[-_longest(params) :])
        self._runs = [run for run in params.banned_runs if run]
        self._ngrams = None
        if params.no_repeat_ngram_size:
            self._ngrams = SeenNgrams(params.no_repeat_ngram_size, prompt)
        self._reasoning = None if budget is None else ReasoningClock(budget)
        self._bits: bytes | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing may follow."""
        return self._matcher is not None and self._matcher.complete

    @property
    def ends_answer(self) -> bool:
        """See GrammarMatcher."""
        return self._matcher is not None and self._matcher.ends_answer

    def bits(self) -> bytes:
        """See TokenMask. What leaves no token at all is left out."""
        if self._bits is None:
            self._bits = self._mask().tobytes()
        return self._bits

    def accept(self, token: int) -> None:
        """See GrammarMatcher."""
        self._bits = None
        if self._matcher is not None:
            self._matcher.accept(token)
        self._left = max(0, self._left - 1)
        self._tail = [*self._tail, token][-_longest(self._params) :]
        if self._ngrams is not None:
            self._ngrams.add(token)
        if self._reasoning is not None:
            self._reasoning.add(token)

    def _mask(self) -> Bits:
        always = self._allowed
        if self._matcher is not None:
            ours = np.frombuffer(self._matcher.bits(), np.uint8)[: len(always)]
            both = ours & always
            always = both if both.any() else ours
        due = None if self._reasoning is None else self._reasoning.due
        if due is not None and always[due >> 3] >> (due & 7) & 1:
            only = np.zeros_like(always)
            only[due >> 3] = 1 << (due & 7)
            return only
        banned = np.fromiter(self._banned(), np.int64)
        if not len(banned):
            return always
        mask = always.copy()
        np.bitwise_and.at(mask, banned >> 3, ~(1 << (banned & 7)).astype(np.uint8))
        return mask if mask.any() else always

    def _banned(self) -> set[int]:
        found: set[int] = set()
        if self._left:
            found.update(self._params.end_token_ids)
        for run in self._runs:
            before = len(run) - 1
            if not before or tuple(self._tail[-before:]) == run[:-1]:
                found.add(run[-1])
        if self._ngrams is not None:
            found |= self._ngrams.next()
        return found


class SeenNgrams:
    """What followed every run of size - 1 tokens so far."""

    def __init__(self, size: int, tokens: Sequence[int]) -> None:
        self._before = size - 1
        self._next: dict[tuple[int, ...], set[int]] = {}
        self._tail: tuple[int, ...] = ()
        for token in tokens:
            self.add(token)

    def add(self, token: int) -> None:
        """One token more."""
        if len(self._tail) == self._before:
            self._next.setdefault(self._tail, set()).add(token)
        self._tail = (*self._tail, token)[-self._before :] if self._before else ()

    def next(self) -> set[int]:
        """The tokens that would repeat a run."""
        return self._next.get(self._tail, set())


class ReasoningClock:
    """Counts the tokens of reasoning, and writes its end when there were too many."""

    def __init__(self, budget: ReasoningBudget) -> None:
        self._budget = budget
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = b""  # so far, as much as is looked at
        self._count: int | None = 0 if budget.opened else None  # None: it has not begun
        self._written = 0  # tokens of closing
        self._done = False

    @property
    def due(self) -> int | None:
        """The only token that may come next; None: any."""
        budget = self._budget
        if self._done or self._count is None or self._count < budget.max_tokens:
            return None
        if not self._written and self._decoder.getstate()[0]:
            return None  # a character is incomplete
        return budget.closing[self._written]

    def add(self, token: int) -> None:
        """The next token of the answer."""
        if self._done:
            return
        if self.due == token:
            self._written += 1
            self._done = self._written == len(self._budget.closing)
            return
        piece = self._budget.piece(token)
        self._decoder.decode(piece)
        self._text += piece
        if self._count is None:
            self._look_for_opening()
            return
        self._count += 1
        self._done = self._budget.end in self._text
        self._text = self._text[-len(self._budget.end) :]

    def _look_for_opening(self) -> None:
        text = self._text.lstrip()
        opening = self._budget.opening
        if text.startswith(opening):
            self._count, self._text = 0, b""
        elif not opening.startswith(text) or len(self._text) > _MAX_BLANKS:
            self._done = True


def constrains(params: SamplingParams) -> bool:
    """Whether the parameters, without a budget of reasoning, need a constraint."""
    return bool(
        params.min_tokens
        or params.allowed_token_ids
        or params.banned_runs
        or params.no_repeat_ngram_size
    )


def _longest(params: SamplingParams) -> int:
    """Tokens of the answer that must be known for banned_runs."""
    return max(map(len, params.banned_runs), default=1)


def _allowed_bits(ids: Sequence[int], vocabulary: int) -> Bits:
    flags = np.zeros(-(-vocabulary // 32) * 32, np.uint8)
    flags[list(ids) if ids else slice(vocabulary)] = 1
    return np.packbits(flags, bitorder="little")
