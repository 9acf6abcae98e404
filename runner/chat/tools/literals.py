"""Values as Python, JSON and Gemma write them, read without evaluating anything.

Owns the reading of text, numbers, lists and objects, and of calls with named arguments. Bounded in
depth; what ends too early is closed where only brackets are missing, unless it was broken off.
Knows no family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

MAX_DEPTH = 64
_WORDS = {"True": True, "true": True, "False": False, "false": False}
_NOTHING = ("None", "null", "nil")
_BLANKS = re.compile(r"\s*")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]{0,308}(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,4})?(?![\w.])")
_WORD = re.compile(r"[^\W\d][\w.-]*")
_STRING = re.compile(
    r'"""((?:[^\\]|\\.)*?)"""|' + r"'''((?:[^\\]|\\.)*?)'''"
    r'|"((?:[^"\\]|\\.)*)"|' + r"'((?:[^'\\]|\\.)*)'",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "0": "\0",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "/": "/",
    "\n": "",
}
_BARE = re.compile(r"[^,{}\[\]]*")


class NotLiteral(ValueError):
    """The text is no value, or no call."""


class LiteralReader:
    """Reads values from a text, one after the other. quote: a marker around texts instead of
    quotation marks; with it keys are bare, and so may texts be. cut: the text was broken off, so
    that its end closes nothing."""

    def __init__(self, text: str, quote: str | None = None, *, cut: bool = False) -> None:
        self._text = text
        self._quote = quote
        self._cut = cut
        self.at = 0

    def skip(self, marker: str) -> bool:
        """Whether marker comes next, after blanks; it is read then."""
        self._blanks()
        if not self._text.startswith(marker, self.at):
            return False
        self.at += len(marker)
        return True

    def ended(self) -> bool:
        """Whether only blanks are left."""
        self._blanks()
        return self.at >= len(self._text)

    def word(self) -> str:
        """An identifier, with dots and hyphens. Raises NotLiteral."""
        self._blanks()
        found = _WORD.match(self._text, self.at)
        if found is None:
            raise NotLiteral
        self.at = found.end()
        return found[0]

    def value(self, depth: int = 0) -> Any:
        """The next value. Raises NotLiteral."""
        if depth > MAX_DEPTH:
            raise NotLiteral
        self._blanks()
        if self.skip("{"):
            return self._object(depth)
        for opening, closing in (("[", "]"), ("(", ")")):
            if self.skip(opening):
                return [self.value(depth + 1) for _ in self._items(closing)]
        return self._scalar()

    def call(
        self, positional: Sequence[str] = (), into: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The arguments of a call, up to its closing bracket; the opening one is read. positional:
        the names of arguments given without one. into: gets them one by one. Raises NotLiteral."""
        arguments: dict[str, Any] = {} if into is None else into
        for _ in self._items(")"):
            name = self._argument_name()
            if name is None:
                if len(arguments) >= len(positional):
                    raise NotLiteral
                name = positional[len(arguments)]
            if name in arguments:
                raise NotLiteral
            arguments[name] = self._whole_value(1)
        return arguments

    def object(self, into: dict[str, Any] | None = None) -> dict[str, Any]:
        """An object, its opening brace included. into: gets its values one by one. Raises
        NotLiteral."""
        if not self.skip("{"):
            raise NotLiteral
        return self._object(0, into)

    def _whole_value(self, depth: int) -> Any:
        value = self.value(depth)
        if self._cut and self.ended():
            raise NotLiteral
        return value

    def _argument_name(self) -> str | None:
        before = self.at
        self._blanks()
        if (found := _WORD.match(self._text, self.at)) is not None:
            self.at = found.end()
            if self.skip("=") and not self._text.startswith("=", self.at):
                return found[0]
        self.at = before
        return None

    def _object(self, depth: int, into: dict[str, Any] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {} if into is None else into
        for _ in self._items("}"):
            key = self._key()
            if not self.skip(":"):
                raise NotLiteral
            found[key] = self._whole_value(depth + 1)
        return found

    def _items(self, closing: str) -> Iterator[None]:
        """A turn for each item up to closing. The end of the text closes as well: models forget
        the last brackets."""
        while not self.skip(closing):
            if self.ended():
                if self._cut:
                    raise NotLiteral
                return
            yield
            if not (self.skip(",") or self._text.startswith(closing, self.at) or self.ended()):
                raise NotLiteral

    def _key(self) -> str:
        self._blanks()
        if self._quote is not None:
            if self._text.startswith(self._quote, self.at):
                return self._quoted(self._quote)
            end = self._text.find(":", self.at)
            key = self._text[self.at : end].strip() if end >= 0 else ""
            if not key or len(key) > 256 or key[0] in "\"'":
                return self._string()
            self.at = end
            return key
        return self._string()

    def _scalar(self) -> Any:
        text = self._text
        if self._quote is not None and text.startswith(self._quote, self.at):
            return self._quoted(self._quote)
        if text.startswith(('"', "'"), self.at):
            return self._string()
        if (found := _NUMBER.match(text, self.at)) is not None:
            self.at = found.end()
            return _number(found[0])
        if self._quote is not None:
            return self._bare()
        word = self.word()
        if word in _WORDS:
            return _WORDS[word]
        if word in _NOTHING:
            return None
        raise NotLiteral

    def _quoted(self, quote: str) -> str:
        start = self.at + len(quote)
        end = self._text.find(quote, start)
        if end < 0:
            raise NotLiteral
        self.at = end + len(quote)
        return self._text[start:end]

    def _string(self) -> str:
        found = _STRING.match(self._text, self.at)
        if found is None:
            raise NotLiteral
        self.at = found.end()
        body = next(group for group in found.groups() if group is not None)
        return _unescaped(body)

    def _bare(self) -> Any:
        found = _BARE.match(self._text, self.at)
        word = "" if found is None else found[0].strip()
        if found is None or not word:
            raise NotLiteral
        self.at = found.end()
        return None if word in _NOTHING else _WORDS.get(word, word)

    def _blanks(self) -> None:
        found = _BLANKS.match(self._text, self.at)
        if found is not None:
            self.at = found.end()


def literal(text: str) -> Any:
    """The one value that text is; small models write a bracket too many after it. Raises
    NotLiteral."""
    reader = LiteralReader(text)
    value = reader.value()
    while reader.skip("}") or reader.skip("]"):
        pass
    if not reader.ended():
        raise NotLiteral
    return value


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_character, text)
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _character(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > 1:
        code = int(escape[1:], 16)
        return chr(code) if code <= 0x10FFFF else "\ufffd"
    return _ESCAPES.get(escape, found[0])
