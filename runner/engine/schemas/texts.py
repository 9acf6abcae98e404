"""What patterns of a schema match, remembered for one rewriting."""

from __future__ import annotations

from runner.engine.schemas.expressions import Unsupported
from runner.engine.schemas.languages import Languages, Term, TooLarge, written_except
from runner.engine.schemas.pattern_syntax import NotRegular
from runner.engine.schemas.patterns import json_expression, language, plain_patterns
from runner.engine.schemas.shapes import Str


class Texts:
    """Every method raises Unsupported for a pattern that it cannot take apart."""

    def __init__(self, end_s: float) -> None:
        """end_s: see Languages."""
        self.languages = Languages(end_s)
        self._terms: dict[str, Term] = {}
        self._written: dict[Term, str] = {}
        self._apart: dict[frozenset[tuple[str, bool]], bool] = {}

    def term(self, pattern: str) -> Term:
        """The texts in which a pattern is found."""
        if pattern not in self._terms:
            try:
                self._terms[pattern] = language(pattern, self.languages)
            except NotRegular as error:
                raise Unsupported(f"`pattern` with {error} is not supported here") from None
            except TooLarge:
                raise Unsupported("`pattern`: the regular expression is too large here") from None
        return self._terms[pattern]

    def matches(self, pattern: str, text: str) -> bool:
        """Whether the pattern is found in the text."""
        return self.languages.matches(self.term(pattern), text)

    def apart(self, patterns: tuple[str, ...], without: tuple[str, ...] = ()) -> bool:
        """Whether no text has all patterns and none of the others. False where that would be too
        much work to know."""
        key = frozenset([(one, True) for one in patterns] + [(one, False) for one in without])
        if key not in self._apart:
            try:
                terms = [self.term(one) for one in patterns]
                terms += [self.languages.other(self.term(one)) for one in without]
                self._apart[key] = self.languages.is_empty(self.languages.both(terms))
            except (TooLarge, Unsupported):
                self._apart[key] = False
        return self._apart[key]

    def plain(self, pattern: str) -> list[str]:
        """Patterns without look-around, in Rust's syntax, that a text has all where it has this
        one."""
        try:
            return plain_patterns(pattern, self.languages)
        except NotRegular as error:
            if not any(look in pattern for look in ("(?=", "(?!", "(?<")):
                return [pattern]
            raise Unsupported(f"`pattern` with {error} is not supported") from None
        except TooLarge:
            raise Unsupported("`pattern`: the look-around is too large") from None

    def is_none(self, term: Term) -> bool:
        """Whether it is known that no text is in a language."""
        try:
            return self.languages.is_empty(term)
        except TooLarge:
            return False

    def json_expression(self, pattern: str) -> str | None:
        """See patterns.py; None where it has none."""
        try:
            return json_expression(pattern)
        except NotRegular:
            return None

    def written(self, term: Term) -> str:
        """A regular expression for a language."""
        if term not in self._written:
            try:
                self._written[term] = self.languages.regex(term)
            except TooLarge:
                reason = "`pattern`: the regular expression is too large here"
                raise Unsupported(reason) from None
        return self._written[term]

    def all_but(self, texts: tuple[str, ...]) -> str:
        """A regular expression for all others."""
        try:
            return written_except(texts)
        except TooLarge:
            return self.written(self.languages.other(self.one_of(texts)))

    def one_of(self, texts: tuple[str, ...]) -> Term:
        """Exactly these."""
        return self.languages.union(map(self.languages.text, texts))

    def whole(self, shape: Str) -> Term:
        """All texts of a shape."""
        if shape.formats:
            raise Unsupported("`format` of a property's name is not supported")
        languages = self.languages
        any_one = languages.chars(((0, 0x10FFFF),))
        parts = [languages.repeat(any_one, shape.low, shape.high)]
        parts += [self.term(one) for one in shape.patterns]
        parts += [languages.other(self.term(one)) for one in shape.without]
        if shape.excluded:
            parts.append(languages.other(self.one_of(shape.excluded)))
        if shape.values is not None:
            parts.append(self.one_of(shape.values))
        return languages.both(parts)

    def has(self, shape: Str, text: str) -> bool:
        """Whether a text is of a shape, as far as its format is not asked."""
        return (
            len(text) >= shape.low
            and (shape.high is None or len(text) <= shape.high)
            and text not in shape.excluded
            and (shape.values is None or text in shape.values)
            and all(self.matches(one, text) for one in shape.patterns)
            and not any(self.matches(one, text) for one in shape.without)
        )
