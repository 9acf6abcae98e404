"""The pieces of a Modelfile's text: blanks, comments, words, values, with their places.

The grammar is Ollama's state machine, read by pieces instead of by characters: a value is the
rest of its line, unless it begins with a quote; then it ends at the first line end before which
the same quote stands. There are no escapes. Characters that cannot be printed stay in values,
where Ollama drops them, so that no text is lost. Knows nothing of which words are valid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TRIMMED = " \t\n\v\f\r\x85\xa0"
_WORD = re.compile(r"[^ \t\r\n]*")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_BLANKS = re.compile(r"[ \t]*")
_NO_INSTRUCTION = re.compile(r"(?:[ \t\r\n]++|#[^\r\n]*+)*+")
_REST_OF_LINE = re.compile(r"[^\r\n]*")
_CLOSING = {quote: re.compile(quote + r"[ \t\v\f\x85\xa0]*(?=[\r\n]|\Z)") for quote in ('"', '"""')}
# The usual commands in one match, since calls are what a long Modelfile costs
_PLAIN = re.compile(
    r"(?:[ \t\r\n]++|#[^\r\n]*+)*+"  # what stands before
    r"(?:(?:(parameter)[ \t]++(\w++)|(message)[ \t]++((?-i:system|user|assistant)))"
    r"|(from|system|template|license|adapter))[ \t]++"
    r'(?:"""([^"]*+)"""|"([^"\r\n]*+)"|([^"\s\x85\xa0][^\r\n]*+))[ \t]*+(?=[\r\n]|\Z)',
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Word:
    """A piece of text without blanks. line and column count from 1."""

    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Value:
    """An instruction's value, without its quotes. closed: False when the text ended before the
    closing quote."""

    text: str
    closed: bool
    quote: str


class Lexer:
    """A cursor over the text of a Modelfile."""

    __slots__ = ("_line", "_line_start", "_position", "_returns", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._returns = "\r" in text
        self._line, self._line_start = 1, 0  # of the last word

    @property
    def at_end(self) -> bool:
        """True when nothing is left."""
        return self._position >= len(self._text)

    @property
    def at_blank(self) -> bool:
        """True when a space or a tab comes next."""
        return self._text[self._position : self._position + 1] in (" ", "\t")

    def skip_blanks(self) -> None:
        """Pass over spaces and tabs."""
        self._position = _end(_BLANKS, self._text, self._position)

    def skip_to_instruction(self) -> None:
        """Pass over blanks, line ends and comments."""
        self._position = _end(_NO_INSTRUCTION, self._text, self._position)

    def plain(self) -> tuple[str, str | None, str, int, int] | None:
        """The next command, if it is a usual one: what it is called, in lower case, its word,
        value, line and column. None: nothing is read; word and value will tell what stands here."""
        found = _PLAIN.match(self._text, self._position)
        if found is None:
            return None
        parameter, name, message, role, other, long, short, bare = found.groups()
        start = found.start(1 if parameter else 3 if message else 5)
        self._count_lines(start)
        self._position = found.end()
        value = bare.strip(_TRIMMED) if bare else short if long is None else long
        instruction = (parameter or message or other).lower()
        return instruction, name or role, value, self._line, start - self._line_start + 1

    def word(self) -> Word:
        """The characters up to the next blank or line end; perhaps none."""
        start = self._position
        self._count_lines(start)
        self._position = _end(_WORD, self._text, start)
        column = start - self._line_start + 1
        return Word(self._text[start : self._position], self._line, column)

    def value(self) -> Value:
        """The value that starts here."""
        start, end = self._position, self._line_end(self._position)
        first = self._text[start:end].strip(_TRIMMED)
        quote = _opening(first)
        if not quote:
            self._position = end
            return Value(first, True, quote)
        closed = first.endswith(quote) and len(first) >= 2 * len(quote)
        if not closed:
            found = _CLOSING[quote].search(self._text, end)
            closed = found is not None
            end = found.end() if found else len(self._text)
        self._position = end
        text = self._text[start:end].strip(_TRIMMED)
        if not closed:
            return Value(text, False, quote)
        return Value(text[len(quote) : len(text) - len(quote)], True, quote)

    def _count_lines(self, position: int) -> None:
        """Bring the line up to position, which no earlier word lies behind."""
        text, start = self._text, self._line_start
        if self._returns:
            for found in _LINE_BREAK.finditer(text, start, position):
                self._line, self._line_start = self._line + 1, found.end()
            return
        self._line += text.count("\n", start, position)
        self._line_start = max(start, text.rfind("\n", start, position) + 1)

    def _line_end(self, start: int) -> int:
        return _end(_REST_OF_LINE, self._text, start)


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where the match of pattern, which may be empty, ends."""
    found = pattern.match(text, start)
    return found.end() if found else start


def _opening(first_line: str) -> str:
    if first_line[:1] != '"':
        return ""
    return '"""' if first_line.startswith('"""') else '"'
