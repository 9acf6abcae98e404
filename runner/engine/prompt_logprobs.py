"""The log-probabilities of a prompt's own tokens, collected chunk by chunk.

Those of a token come with the logits of the one before it, so that the first token has none and
no position may be taken from the prefix cache until all are known. What was told before a
preemption is not told again. Knows no backend and no queues.
"""

from __future__ import annotations

import math
from array import array

from runner.backends.backend import TargetLogprobs
from runner.engine.detokenize import TokenTexts
from runner.types import PromptToken


class PromptLogprobs:
    """How far the prompt of one request has been told."""

    __slots__ = ("_asked", "_length", "_start", "_table", "_tokens", "_told", "_top")

    def __init__(self, tokens: array[int], top: int, table: TokenTexts) -> None:
        """tokens: the prompt, which is copied. top: alternatives for each token."""
        self._tokens = tokens[:]
        self._length = len(tokens)
        self._top = top
        self._table = table
        self._told = 0
        self._asked: TargetLogprobs | None = None
        self._start = 0

    @property
    def complete(self) -> bool:
        """True when all of the prompt has been told."""
        return self._told == self._length

    def ask(self, start: int, count: int) -> TargetLogprobs | None:
        """What the row of count tokens from start on shall find out; None: nothing."""
        self._start = start
        self._asked = None
        if not self.complete:
            targets = self._tokens[start + 1 : start + count + 1].tolist()
            self._asked = TargetLogprobs(targets, self._top)
        return self._asked

    def take(self) -> tuple[PromptToken, ...] | None:
        """The tokens that the row has told of, once each; None when its numbers are none
        (NaN)."""
        asked, self._asked = self._asked, None
        if asked is None:
            return ()
        if any(math.isnan(nats) for nats, _ in asked.found):
            return None
        told = [self._first()] if self._told == 0 else []
        for at, (nats, top) in enumerate(asked.found, self._start + 1):
            if at >= self._told:
                told.append(self._token(self._tokens[at], nats, top))
        self._told = max(self._told, self._start + len(asked.found) + 1)
        return tuple(told)

    def _first(self) -> PromptToken:
        token = self._tokens[0]
        return PromptToken(token, self._table.name(token), None)

    def _token(self, token: int, nats: float, top: tuple[tuple[int, float], ...]) -> PromptToken:
        name = self._table.name
        alternatives = tuple((other, name(other), value) for other, value in top)
        return PromptToken(token, name(token), nats, alternatives)
