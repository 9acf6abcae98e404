"""A grammar that applies from where the model begins a tool call, and only for that call.

Until then the answer is free: no mask is computed for it, and it may be drafted. Knows no tool
format beyond how calls begin, nor who does the matching.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Sequence

from runner.engine.sequence import GrammarMatcher
from runner.errors import InvalidRequest

log = logging.getLogger(__name__)

_QUOTES = b"`'\""
_KEPT_BYTES = 256  # of the text, in which a beginning is looked for


class _BeginsError(Exception):
    """A call begins where it is only looked for one."""


def _begin_nothing() -> GrammarMatcher:
    raise _BeginsError


class CallWatch:
    """Follows one answer. What the grammar cannot hold stays as the model wrote it."""

    def __init__(
        self,
        begin: Callable[[], GrammarMatcher],
        begins: str,
        reasoning: tuple[str, str] | None = None,
        *,
        opened: bool = False,
    ) -> None:
        """begin: makes a matcher of a text that ends with a match of the regular expression begins,
        and what follows it. reasoning: the tags around text in which nothing is called; opened: it
        has begun."""
        self._begin = begin
        self._begins = re.compile(begins.encode())
        self._tags = None if reasoning is None else (reasoning[0].encode(), reasoning[1].encode())
        self._reasons = opened and reasoning is not None
        self._tokens: list[tuple[int, bytes]] = []  # the last ones, in which a call may begin
        self._text = b""  # theirs
        self._matcher: GrammarMatcher | None = None

    def follow(self, token: int, piece: bytes) -> GrammarMatcher | None:
        """The matcher that the tokens after this one must match; None: they are free. piece: its
        bytes; control tokens of the tool format have those of their names."""
        if self._matcher is not None:
            self._advance([token])
        elif piece:
            self._look(token, piece)
        return self._matcher

    def free_tokens(self, tokens: Sequence[tuple[int, bytes]]) -> int:
        """See Watch."""
        ahead = copy.copy(self)
        ahead._tokens, ahead._begin = list(self._tokens), _begin_nothing
        for count in range(len(tokens)):
            try:
                ahead.follow(*tokens[count])
            except _BeginsError:
                return count
        return len(tokens)

    def _look(self, token: int, piece: bytes) -> None:
        self._tokens.append((token, piece))
        self._text += piece
        while len(self._text) - len(self._tokens[0][1]) >= _KEPT_BYTES:
            self._text = self._text[len(self._tokens.pop(0)[1]) :]
        if self._reasons or (self._tags is not None and self._tags[0] in self._text):
            assert self._tags is not None
            ended = self._tags[1] in self._text
            if ended or not self._reasons:
                self._reasons = not ended
                self._forget()
            return
        at = max((found.start() for found in self._begins.finditer(self._text)), default=-1)
        if at < 0 or (at and self._text[at - 1] in _QUOTES):
            return
        skipped = 0
        while skipped + len(self._tokens[0][1]) <= at:
            skipped += len(self._tokens.pop(0)[1])
        tokens = [one for one, _ in self._tokens]
        self._forget()
        self._matcher = self._begin()
        self._advance(tokens)

    def _advance(self, tokens: list[int]) -> None:
        assert self._matcher is not None
        try:
            for token in tokens:
                self._matcher.accept(token)
        except InvalidRequest as error:
            log.debug("a call is not held to its schema: %s", error)
            self._matcher = None
        else:
            self._matcher = None if self._matcher.complete else self._matcher

    def _forget(self) -> None:
        self._tokens, self._text = [], b""


class WatchedCalls(GrammarMatcher):
    """A watch as a matcher, for answers that have a mask for other reasons."""

    complete = False
    ends_answer = False

    def __init__(self, watch: CallWatch, piece: Callable[[int], bytes], vocabulary: int) -> None:
        """piece: the bytes of a token, as CallWatch has them. vocabulary: the number of logits."""
        self._watch = watch
        self._piece = piece
        self._free = b"\xff" * (4 * -(-vocabulary // 32))
        self._matcher: GrammarMatcher | None = None

    def bits(self) -> bytes:
        """See TokenMask."""
        return self._free if self._matcher is None else self._matcher.bits()

    def accept(self, token: int) -> None:
        """See GrammarMatcher."""
        self._matcher = self._watch.follow(token, self._piece(token))
