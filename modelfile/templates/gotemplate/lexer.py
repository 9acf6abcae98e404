"""From the source of a Go template to tokens, as text/template/parse/lex.go has them.

An error is the last token, so that a syntax error before it is reported first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

_SPACE: Final = " \t\r\n"
_BLANKS = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(
    r"(?P<SPACE>[ \t\r\n](?:[ \t\r\n](?!-\}\}))*)"
    r"|(?P<ASSIGN>=)|(?P<DECLARE>:=)|(?P<PIPE>\|)|(?P<OPEN>\()|(?P<CLOSE>\))"
    r'|(?P<STRING>"(?:\\[^\n]|[^\\"\n])*")|(?P<RAW_STRING>`[^`]*`)'
    r"|(?P<NUMBER>(?=[+\-0-9]|\.[0-9])[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?"
    r"(?:[pP][+-]?[0-9_]*)?|0[oO][0-7_]*(?:\.[0-7_]*)?|0[bB][01_]*(?:\.[01_]*)?"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?)"
    r"|(?P<VARIABLE>\$\w*)|(?P<FIELD>\.\w+)|(?P<DOT>\.)|(?P<IDENTIFIER>\w+)"
    r"|(?P<CHAR>[!#%&*,/;<>?@\[\\\]^{}~])"
)
_WORD_END = re.compile(r"[ \t\r\n.,|:)(]|\}\}|\Z")
_FAULTS: Final = {
    "": "unclosed action",
    ":": "expected :=",
    '"': "unterminated quoted string",
    "`": "unterminated raw quoted string",
    "'": "character constants are not supported",
}


# What a token is.
ItemType = Enum(
    "ItemType",
    "ERROR EOF TEXT LEFT RIGHT SPACE ASSIGN DECLARE PIPE OPEN CLOSE STRING RAW_STRING NUMBER"
    " VARIABLE FIELD DOT BOOL NIL IDENTIFIER CHAR KEYWORD",
)
KEYWORDS: Final = frozenset(
    ("block", "break", "continue", "define", "else", "end", "if", "range", "template", "with")
)


@dataclass(frozen=True, slots=True)
class LexItem:
    """A piece of the source. position: its offset in characters; line counts from 1."""

    kind: ItemType
    text: str
    position: int
    line: int

    def __str__(self) -> str:
        """As Go's messages write it."""
        if self.kind is ItemType.EOF:
            return "EOF"
        if self.kind is ItemType.ERROR:
            return self.text
        if self.kind is ItemType.KEYWORD:
            return f"<{self.text}>"
        return quoted(self.text) if len(self.text) <= 10 else quoted(self.text[:10]) + "..."


def quoted(text: str) -> str:
    """text as Go's %q has it, near enough for messages."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def lex(source: str) -> list[LexItem]:
    """The tokens of a template; the last one is EOF or ERROR."""
    lexer = _Lexer(source)
    while lexer.text() and lexer.action():
        pass
    return lexer.tokens


class _Lexer:
    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0
        self._line = 1
        self.tokens: list[LexItem] = []

    def _emit(self, kind: ItemType, end: int) -> None:
        text = self._source[self._position : end]
        self.tokens.append(LexItem(kind, text, self._position, self._line))
        self._move(end)

    def _move(self, end: int) -> None:
        self._line += self._source.count("\n", self._position, end)
        self._position = end

    def _error(self, message: str) -> bool:
        self.tokens.append(LexItem(ItemType.ERROR, message, self._position, self._line))
        return False

    def text(self) -> bool:
        """Text up to a left delimiter. False at the end of the source."""
        source = self._source
        start = source.find("{{", self._position)
        end = len(source) if start < 0 else start
        if start >= 0 and self._trims(start + 2):
            end = self._position + len(source[self._position : start].rstrip(_SPACE))
        if end > self._position:
            self._emit(ItemType.TEXT, end)
        if start < 0:
            self._emit(ItemType.EOF, end)
            return False
        self._move(start)
        return True

    def _trims(self, at: int) -> bool:
        return self._source.startswith(("- ", "-\t", "-\r", "-\n"), at)

    def action(self) -> bool:
        """One action or comment. False after an error."""
        body = self._position + (4 if self._trims(self._position + 2) else 2)
        if self._source.startswith("/*", body):
            return self._comment(body)
        self._emit(ItemType.LEFT, self._position + 2)
        self._move(body)
        depth = 0
        while not self._at_right_delimiter():
            found = _TOKEN.match(self._source, self._position)
            if found is None:
                return self._error(self._fault())
            kind = ItemType[str(found.lastgroup)]
            depth += (kind is ItemType.OPEN) - (kind is ItemType.CLOSE)
            if depth < 0:
                return self._error("unexpected right paren")
            fault = _fault_after(kind, found)
            if fault is not None:
                return self._error(fault)
            self._emit(_WORDS.get(found[0], kind), found.end())
        if depth:
            return self._error("unclosed left paren")
        trims = self._source[self._position] != "}"
        self._move(self._position + 2 * trims)
        self._emit(ItemType.RIGHT, self._position + 2)
        self._skip_blanks(trims)
        return True

    def _at_right_delimiter(self) -> bool:
        return self._source.startswith(("}}", " -}}", "\t-}}", "\r-}}", "\n-}}"), self._position)

    def _skip_blanks(self, trims: bool) -> None:
        if trims and (blanks := _BLANKS.match(self._source, self._position)):
            self._move(blanks.end())

    def _comment(self, body: int) -> bool:
        end = self._source.find("*/", body + 2)
        if end < 0:
            return self._error("unclosed comment")
        self._move(end + 2)
        if not self._at_right_delimiter():
            return self._error("comment ends before closing delimiter")
        trims = self._source[self._position] != "}"
        self._move(self._position + (4 if trims else 2))
        self._skip_blanks(trims)
        return True

    def _fault(self) -> str:
        """Why no token begins here."""
        character = self._source[self._position : self._position + 1]
        unknown = f"unrecognized character in action: {code_point(character or ' ')}"
        return _FAULTS.get(character, unknown)


_WORDS: Final = {
    **dict.fromkeys(KEYWORDS, ItemType.KEYWORD),
    **dict.fromkeys(("true", "false"), ItemType.BOOL),
    "nil": ItemType.NIL,
}


_NAMES: Final = (ItemType.VARIABLE, ItemType.FIELD, ItemType.DOT, ItemType.IDENTIFIER)


def _fault_after(kind: ItemType, found: re.Match[str]) -> str | None:
    """What is wrong with what follows a token."""
    source, end = found.string, found.end()
    after = source[end : end + 1]
    if kind is ItemType.NUMBER:
        if after in ("+", "-"):
            return "complex numbers are not supported"
        if re.match(r"\w", after):
            return f"bad number syntax: {quoted(source[found.start() : end + 1])}"
    elif kind in _NAMES and _WORD_END.match(source, end) is None:
        return f"bad character {code_point(after)}"
    return None


def code_point(character: str) -> str:
    """A character as Go's %#U has it."""
    shown = f" '{character}'" if character.isprintable() else ""
    return f"U+{ord(character):04X}{shown}"
