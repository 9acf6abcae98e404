"""A request's grammar as a matcher, made off the engine's thread."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from runner.backends.backend import Tokenizer
from runner.engine.call_watch import CallWatch
from runner.engine.sequence import GrammarMatcher
from runner.errors import InvalidRequest
from runner.types import GenerateRequest, Grammar
from runner.worker.truncation import EncodedPrompt

if TYPE_CHECKING:
    from runner.engine.grammar import Grammars

log = logging.getLogger(__name__)

MAX_NOT_ENFORCED = 16  # remembered, so as not to be tried with each request


class GrammarCompiler:
    """The grammars of one model. Any thread may call."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._grammars: Grammars | None = None
        self._not_enforced: deque[tuple[Grammar, str | None]] = deque(
            maxlen=MAX_NOT_ENFORCED
        )  # lazy ones

    def matcher(
        self, request: GenerateRequest, prompt: EncodedPrompt
    ) -> GrammarMatcher | CallWatch | None:
        """A fresh matcher for the request, which has a grammar; None: it is lazy, and cannot be
        enforced. Raises InvalidRequest."""
        grammar = request.grammar
        assert grammar is not None
        reasoning = grammar.reasoning
        opened = reasoning is not None and prompt.answer_prefix == reasoning[0]
        if grammar.begins:
            return self._watch(grammar, opened, request.cache_salt)
        return self._ready().matcher(grammar, opened=opened, salt=request.cache_salt)

    def _watch(self, grammar: Grammar, opened: bool, salt: str | None) -> CallWatch | None:
        if (grammar, salt) in self._not_enforced:
            return None
        try:
            return self._ready().watch(grammar, opened=opened, salt=salt)
        except InvalidRequest as error:
            log.info("calls are not held to their schemas: %s", error)
            self._not_enforced.append((grammar, salt))
            return None

    def _ready(self) -> Grammars:
        with self._lock:
            if self._grammars is None:  # most models never see a grammar
                from runner.engine.grammar import Grammars

                self._grammars = Grammars(self._tokenizer)
            return self._grammars
