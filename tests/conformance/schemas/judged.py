"""What hearth says of a value: whether some text of it is allowed by a schema's masks.

The order of an object's properties is the schema's, so that a text is looked for: keys are tried in
the order in which the schema names them, on a vocabulary of bytes. What is found is then written
in three ways (compact, with spaces, indented) and checked token by token with real vocabularies.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

from llguidance import LLMatcher

from runner.backends.backend import Tokenizer
from runner.engine.grammar import Grammars, LlguidanceMatcher
from runner.errors import InvalidRequest
from runner.types import Grammar
from tests.fake_backend import FakeTokenizer

MAX_STEPS = 20_000  # of the search for one value
Text = Any  # a value with its keys in an order that is allowed


class Judge:
    """Of one schema. Raises InvalidRequest where it is not taken."""

    def __init__(self, schema: Any, grammars: Grammars) -> None:
        """grammars: of a vocabulary of bytes."""
        self._grammar = Grammar("json_schema", json.dumps(schema), "$")
        self._grammars = grammars
        self._order = {name: at for at, name in enumerate(dict.fromkeys(_names(schema)))}
        self._compiled = grammars._compiled_of(self._grammar, False, None).matcher

    def allowed(self, value: Any) -> tuple[Text] | None:
        """The value as it may be written; None: it is refused."""
        search = _Search(self._compiled.deep_copy(), self._order)
        found = search.found(value)
        if not found or not self._whole(next(forms(found[0]))):
            return None
        return found

    def _whole(self, text: str) -> bool:
        """Whether the masks of the product allow a text, byte for byte."""
        return all_allowed(self._grammars.matcher(self._grammar), list(text.encode()), 257)


def all_allowed(
    matcher: LlguidanceMatcher, tokens: list[int], end: int, took: list[float] | None = None
) -> bool:
    """Whether each token is in the mask before it, and the end behind them. took: gets the
    processor time of each mask."""
    for token in tokens:
        if matcher.complete or not matcher.bits()[token >> 3] >> (token & 7) & 1:
            return False
        if took is not None:
            took.append(matcher._mask.result()[1])
        try:
            matcher.accept(token)
        except InvalidRequest:  # nothing else could follow
            return False
    return matcher.complete or bool(matcher.bits()[end >> 3] >> (end & 7) & 1)


def forms(value: Text) -> Iterator[str]:
    """The ways of writing it."""
    yield json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    yield json.dumps(value, ensure_ascii=False)
    yield json.dumps(value, indent=2, ensure_ascii=False)


def ways(value: Text, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Its forms, as the vocabulary has them."""
    for text in forms(value):
        yield tokenizer.encode(text, add_bos=False, parse_special=False)


class InPlace(Executor):
    """Does its work in the thread that asks for it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """What has been done."""
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


def grammars_of(tokenizer: Tokenizer) -> Grammars:
    """Those of a vocabulary, with masks computed in place: on a busy machine, handing each to
    another thread takes far longer than the mask."""
    found = Grammars(tokenizer)
    found._pool = InPlace()
    return found


def byte_grammars() -> Grammars:
    """Of a vocabulary of bytes."""
    return grammars_of(FakeTokenizer())


def _names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from properties
        for value in schema.values():
            yield from _names(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _names(value)


class _Search:
    """Depth first, with the matcher going back where a way ends."""

    def __init__(self, matcher: LLMatcher, order: dict[str, int]) -> None:
        self._matcher = matcher
        self._order = order
        self._left = MAX_STEPS
        self._end_s = time.thread_time() + 5.0

    def found(self, value: Any) -> tuple[Text] | None:
        """The value with its keys in an order that is allowed."""
        written: list[Text] = []
        done = self._place(value, lambda text: (written.append(text), self._ends())[1])
        return (written[-1],) if done else None

    def _ends(self) -> bool:
        return bool(self._matcher.is_accepting())

    def _text(self, text: str, then: Callable[[], bool]) -> bool:
        self._left -= 1
        if self._left < 0 or time.thread_time() > self._end_s:
            return False
        tokens = list(text.encode())
        taken = self._matcher.try_consume_tokens(tokens)
        if taken == len(tokens) and then():
            return True
        self._matcher.rollback(taken)
        return False

    def _place(self, value: Any, then: Callable[[Text], bool]) -> bool:
        if isinstance(value, dict):
            return self._text("{", lambda: self._members(value, {}, then))
        if isinstance(value, list):
            return self._text("[", lambda: self._items(value, [], then))
        return any(
            self._text(text, lambda text=text: then(json.loads(text)))  # type: ignore[misc]
            for text in _scalars(value)
        )

    def _items(self, items: list[Any], done: list[Text], then: Callable[[Text], bool]) -> bool:
        if len(done) == len(items):
            return self._text("]", lambda: then(done))
        comma = "," if done else ""

        def go_on() -> bool:
            return self._place(
                items[len(done)], lambda text: self._items(items, [*done, text], then)
            )

        return self._text(comma, go_on) if comma else go_on()

    def _members(
        self, value: dict[str, Any], done: dict[str, Text], then: Callable[[Text], bool]
    ) -> bool:
        if len(done) == len(value):
            return self._text("}", lambda: then(done))
        left = sorted(
            (name for name in value if name not in done),
            key=lambda name: self._order.get(name, len(self._order)),
        )
        comma = "," if done else ""
        return any(
            self._text(
                f"{comma}{json.dumps(name, ensure_ascii=False)}:",
                lambda name=name: self._place(  # type: ignore[misc]
                    value[name], lambda text: self._members(value, {**done, name: text}, then)
                ),
            )
            for name in left
        )


def _scalars(value: Any) -> list[str]:
    found = [json.dumps(value, ensure_ascii=False)]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 + 1:
        found.append(str(int(value)))
    return found
