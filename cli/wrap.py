"""Writes streamed text to a terminal: words are moved to the next line instead of being cut.

Text arrives in pieces and is shown at once, so a word that turns out too long for its line is
taken back and written again. Where no terminal is, text passes unchanged.
"""

from __future__ import annotations

import re
from typing import TextIO
from unicodedata import category, east_asian_width

# A model's output is not trusted to move the cursor, to set titles or to answer queries.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_NO_CELL = ("Mn", "Me", "Cf")  # marks on the character before, joiners and variation selectors


def visible(text: str) -> str:
    """text with every control character but newline and tab made harmless."""
    return _CONTROL.sub("�", text)


def cell_width(text: str) -> int:
    """How many cells of a terminal text takes."""
    return sum(
        0 if category(char) in _NO_CELL else 2 if east_asian_width(char) in "WF" else 1
        for char in text
    )


class PlainWriter:
    """Passes text on as it is, at once. used: whether anything was shown."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._thinking = False
        self.used = False

    def write(self, text: str) -> None:
        """Show text."""
        self.used = True
        self._out.write(text)
        self._out.flush()

    def show(self, thought: str, text: str) -> None:
        """Show a part of the model's reasoning, framed, and a part of its answer."""
        if thought:
            self.write(thought if self._thinking else f"Thinking...\n{thought}")
            self._thinking = True
        if text:
            self.write(f"\n...done thinking.\n\n{text}" if self._thinking else text)
            self._thinking = False


class TerminalWriter(PlainWriter):
    """Makes control characters harmless."""

    def write(self, text: str) -> None:
        """Show text."""
        super().write(visible(text))


class WrappingWriter(PlainWriter):
    """Wraps at width cells, at spaces."""

    def __init__(self, out: TextIO, width: int) -> None:
        super().__init__(out)
        self._width = max(width, 10)
        self._column = 0
        self._word = ""

    def write(self, text: str) -> None:
        """Show text, continuing the line where the last call left it."""
        super().write("".join(self._place(char) for char in visible(text)))

    def _place(self, char: str) -> str:
        if char == "\n":
            self._column, self._word = 0, ""
            return char
        if char in " \t":
            return self._place_space()
        width = cell_width(char)
        if width == 2:  # a line may end before each character of Chinese or Japanese
            self._word = ""
        if self._column + width <= self._width:
            self._word += char
            self._column += width
            return char
        return self._move_word(char)

    def _place_space(self) -> str:
        self._word = ""
        if self._column >= self._width:
            self._column = 0
            return "\n"
        self._column += 1
        return " "

    def _move_word(self, char: str) -> str:
        taken = cell_width(self._word)
        if taken >= self._width - 1:  # longer than a line: there is no better place to cut
            self._word, self._column = char, cell_width(char)
            return f"\n{char}"
        self._word += char
        self._column = cell_width(self._word)
        back = f"\x1b[{taken}D\x1b[K" if taken else ""
        return f"{back}\n{self._word}"
