"""A request's grammar as a matcher, made off the engine's thread.

The vocabulary is prepared with the first grammar: most models never see one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from runner.backends.backend import Tokenizer
from runner.engine.sequence import GrammarMatcher
from runner.types import GenerateRequest, Grammar
from runner.worker.truncation import EncodedPrompt

if TYPE_CHECKING:
    from runner.engine.grammar import Grammars


class GrammarCompiler:
    """The grammars of one model. Any thread may call."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._grammars: Grammars | None = None

    def matcher(self, request: GenerateRequest, prompt: EncodedPrompt) -> GrammarMatcher:
        """A fresh matcher for the request, which has a grammar. Raises InvalidRequest."""
        assert request.grammar is not None
        reasoning = request.grammar.reasoning
        if self._grammars is None:
            self._check(request.grammar)
        opened = reasoning is not None and prompt.answer_prefix == reasoning[0]
        return self._ready().matcher(request.grammar, opened=opened)

    def _check(self, grammar: Grammar) -> None:
        """Refuse at once what the first request may not wait for the vocabulary to be told."""
        from runner.engine.grammar import check

        check(grammar, self._tokenizer)

    def _ready(self) -> Grammars:
        with self._lock:
            if self._grammars is None:
                from runner.engine.grammar import Grammars

                self._grammars = Grammars(self._tokenizer)
            return self._grammars
