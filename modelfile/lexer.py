"""The pieces of a Modelfile's text: blanks, comments, words, values, with their places.

The grammar is Ollama's state machine, read by pieces instead of by characters: a value is the
rest of its line, unless it begins with a quote; then it ends at the first line end before which
the same quote stands. There are no escapes. Characters that cannot be printed stay in values,
where Ollama drops them, so that no text is lost. Knows nothing of which words are valid.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

_SPACES = " \t"
_NEWLINES = "\r\n"
_TRIMMED = " \t\n\v\f\r\x85\xa0"
_WORD = re.compile(r"[^ \t\r\n]*")
_LINE_END = re.compile(r"[\r\n]")


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

    __slots__ = ("_line_starts", "_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._line_starts = [0, *(m.end() for m in re.finditer(r"\r\n|\r|\n", text))]

    @property
    def at_end(self) -> bool:
        """True when nothing is left."""
        return self._position >= len(self._text)

    @property
    def at_blank(self) -> bool:
        """True when a space or a tab comes next."""
        return self._text[self._position : self._position + 1] in tuple(_SPACES)

    def skip_blanks(self) -> None:
        """Pass over spaces and tabs."""
        while self.at_blank:
            self._position += 1

    def skip_to_instruction(self) -> None:
        """Pass over blanks, line ends and comments."""
        while not self.at_end:
            char = self._text[self._position]
            if char == "#":
                self._position = self._line_end(self._position)
            elif char in _SPACES or char in _NEWLINES:
                self._position += 1
            else:
                return

    def word(self) -> Word:
        """The characters up to the next blank or line end; perhaps none."""
        start = self._position
        line = bisect_right(self._line_starts, start)
        found = _WORD.match(self._text, start)
        self._position = found.end() if found else start
        column = start - self._line_starts[line - 1] + 1
        return Word(self._text[start : self._position], line, column)

    def value(self) -> Value:
        """The value that starts here."""
        start, end = self._position, self._line_end(self._position)
        first = self._text[start:end].strip(_TRIMMED)
        quote = _opening(first)
        closed = not quote or (first.endswith(quote) and len(first) >= 2 * len(quote))
        while not closed and end < len(self._text):
            line_start, end = end + 1, self._line_end(end + 1)
            closed = self._text[line_start:end].rstrip(_TRIMMED).endswith(quote)
        self._position = end
        text = self._text[start:end].strip(_TRIMMED)
        if not closed:
            return Value(text, False, quote)
        return Value(text[len(quote) : len(text) - len(quote)], True, quote)

    def _line_end(self, start: int) -> int:
        found = _LINE_END.search(self._text, start)
        return found.start() if found else len(self._text)


def _opening(first_line: str) -> str:
    if first_line.startswith('"""'):
        return '"""'
    return '"' if first_line.startswith('"') else ""
