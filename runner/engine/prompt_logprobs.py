"""The log-probabilities of a prompt's own tokens, collected chunk by chunk.

Those of a token come with the logits of the one before it, so that the first token has none and
no position may be taken from the prefix cache until all are known. What was reported before a
preemption is not reported again. Knows no backend and no queues.
"""

from __future__ import annotations

import math
from array import array

from runner.backends.backend import TargetLogprobs
from runner.engine.detokenize import TokenTexts
from runner.types import PromptToken


class PromptLogprobs:
    """How far the prompt of one request has been scored."""

    __slots__ = ("_length", "_reported", "_scoring", "_start", "_texts", "_tokens", "_top")

    def __init__(self, tokens: array[int], top: int, texts: TokenTexts) -> None:
        """tokens: the prompt, which is copied. top: alternatives for each token."""
        self._tokens = tokens[:]
        self._length = len(tokens)
        self._top = top
        self._texts = texts
        self._reported = 0  # tokens
        self._scoring: TargetLogprobs | None = None
        self._start = 0

    @property
    def complete(self) -> bool:
        """True when all of the prompt has been reported."""
        return self._reported == self._length

    def targets(self, start: int, count: int) -> TargetLogprobs | None:
        """What the row of count tokens from start on shall find out; None: nothing."""
        self._start = start
        self._scoring = None
        if not self.complete:
            targets = self._tokens[start + 1 : start + count + 1].tolist()
            self._scoring = TargetLogprobs(targets, self._top)
        return self._scoring

    def take(self) -> tuple[PromptToken, ...] | None:
        """The tokens that the row has scored, once each; None when its numbers are none (NaN)."""
        scoring, self._scoring = self._scoring, None
        if scoring is None:
            return ()
        if any(math.isnan(nats) for nats, _ in scoring.logprobs):
            return None
        found = [self._first()] if self._reported == 0 else []
        for at, (nats, top) in enumerate(scoring.logprobs, self._start + 1):
            if at >= self._reported:
                found.append(self._token(self._tokens[at], nats, top))
        self._reported = max(self._reported, self._start + len(scoring.logprobs) + 1)
        return tuple(found)

    def _first(self) -> PromptToken:
        token = self._tokens[0]
        return PromptToken(token, self._texts.name(token), None)

    def _token(self, token: int, nats: float, top: tuple[tuple[int, float], ...]) -> PromptToken:
        name = self._texts.name
        alternatives = tuple((other, name(other), value) for other, value in top)
        return PromptToken(token, name(token), nats, alternatives)
