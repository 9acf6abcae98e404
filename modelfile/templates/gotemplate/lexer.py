"""From the source of a Go template to tokens, as text/template/parse/lex.go has them.

An error is the last token, so that a fault of the grammar before it is told first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

_SPACE: Final = " \t\r\n"
_TERMINATORS: Final = _SPACE + ".,|:)("
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?"
    r"|0[oO][0-7_]*(?:\.[0-7_]*)?|0[bB][01_]*(?:\.[01_]*)?"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)
_BLANKS = re.compile(r"[ \t\r\n]+")
_QUOTED = re.compile(r'"(?:\\[^\n]|[^\\"\n])*"')


class ItemType(Enum):
    """What a token is."""

    ERROR = auto()
    EOF = auto()
    TEXT = auto()
    LEFT = auto()
    RIGHT = auto()
    SPACE = auto()
    ASSIGN = auto()
    DECLARE = auto()
    PIPE = auto()
    OPEN = auto()
    CLOSE = auto()
    STRING = auto()
    RAW_STRING = auto()
    NUMBER = auto()
    VARIABLE = auto()
    FIELD = auto()
    DOT = auto()
    BOOL = auto()
    NIL = auto()
    IDENTIFIER = auto()
    CHAR = auto()
    KEYWORD = auto()


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
    lexer.scan()
    return lexer.tokens


class _Lexer:
    def __init__(self, source: str) -> None:
        self.source = source
        self.position = 0
        self.line = 1
        self.depth = 0
        self.tokens: list[LexItem] = []

    def scan(self) -> None:
        """Fill tokens."""
        going = True
        while going:
            going = self._text() and self._action()

    def _emit(self, kind: ItemType, end: int) -> bool:
        text = self.source[self.position : end]
        self.tokens.append(LexItem(kind, text, self.position, self.line))
        self._move(end)
        return True

    def _move(self, end: int) -> None:
        self.line += self.source.count("\n", self.position, end)
        self.position = end

    def _error(self, message: str) -> bool:
        self.tokens.append(LexItem(ItemType.ERROR, message, self.position, self.line))
        return False

    def _text(self) -> bool:
        """Text up to a left delimiter. False at the end of the source."""
        start = self.source.find("{{", self.position)
        if start < 0:
            if self.position < len(self.source):
                self._emit(ItemType.TEXT, len(self.source))
            return self._emit(ItemType.EOF, self.position) and False
        end = start
        if self._trims(start + 2):
            end = self.position + len(self.source[self.position : start].rstrip(_SPACE))
        if end > self.position:
            self._emit(ItemType.TEXT, end)
        self._move(start)
        return True

    def _trims(self, at: int) -> bool:
        return self.source.startswith("-", at) and self.source[at + 1 : at + 2] in tuple(_SPACE)

    def _action(self) -> bool:
        """One action or comment. False after an error."""
        body = self.position + 2
        if self._trims(body):
            body += 2
        if self.source.startswith("/*", body):
            return self._comment(body)
        self._emit(ItemType.LEFT, self.position + 2)
        self._move(body)
        self.depth = 0
        while True:
            delimiter = self._right_delimiter()
            if delimiter is None:
                if not self._inside():
                    return False
            elif self.depth:
                return self._error("unclosed left paren")
            else:
                return self._close(delimiter)

    def _right_delimiter(self) -> bool | None:
        """None: not at one; True: at one that trims what follows."""
        if self.source.startswith("}}", self.position):
            return False
        if self.source[self.position : self.position + 1] in tuple(_SPACE):
            return True if self.source.startswith("-}}", self.position + 1) else None
        return None

    def _close(self, trims: bool) -> bool:
        if trims:
            self._move(self.position + 2)
        self._emit(ItemType.RIGHT, self.position + 2)
        if trims:
            self._skip_blanks()
        return True

    def _skip_blanks(self) -> None:
        blanks = _BLANKS.match(self.source, self.position)
        if blanks:
            self._move(blanks.end())

    def _comment(self, body: int) -> bool:
        end = self.source.find("*/", body + 2)
        if end < 0:
            return self._error("unclosed comment")
        self._move(end + 2)
        delimiter = self._right_delimiter()
        if delimiter is None:
            return self._error("comment ends before closing delimiter")
        self._move(self.position + (4 if delimiter else 2))
        if delimiter:
            self._skip_blanks()
        return True

    def _inside(self) -> bool:
        """One token inside an action. False after an error."""
        source, at = self.source, self.position
        if at >= len(source):
            return self._error("unclosed action")
        character = source[at]
        if character in _SPACE:
            return self._spaces()
        if character in _SIMPLE:
            return self._emit(_SIMPLE[character], at + 1)
        if character == ":":
            if not source.startswith(":=", at):
                return self._error("expected :=")
            return self._emit(ItemType.DECLARE, at + 2)
        if character in "\"`'":
            return self._literal(character)
        if character in "()":
            return self._parenthesis(character)
        if character in ".$":
            return self._field(character)
        if character in "+-0123456789":
            return self._number()
        if _is_word(character):
            return self._word()
        if " " < character < "\x7f":
            return self._emit(ItemType.CHAR, at + 1)
        return self._error(f"unrecognized character in action: {code_point(character)}")

    def _spaces(self) -> bool:
        """A run of blanks; the last one may belong to a delimiter that trims."""
        blanks = _BLANKS.match(self.source, self.position)
        assert blanks is not None
        end = blanks.end()
        if self.source.startswith("-}}", end):
            end -= 1
        return self._emit(ItemType.SPACE, end)

    def _parenthesis(self, character: str) -> bool:
        self.depth += 1 if character == "(" else -1
        if self.depth < 0:
            return self._error("unexpected right paren")
        return self._emit(ItemType.OPEN if character == "(" else ItemType.CLOSE, self.position + 1)

    def _literal(self, quote: str) -> bool:
        if quote == "'":
            return self._error("character constants are not supported")
        if quote == "`":
            end = self.source.find("`", self.position + 1)
            if end < 0:
                return self._error("unterminated raw quoted string")
            return self._emit(ItemType.RAW_STRING, end + 1)
        found = _QUOTED.match(self.source, self.position)
        if found is None:
            return self._error("unterminated quoted string")
        return self._emit(ItemType.STRING, found.end())

    def _field(self, character: str) -> bool:
        after = self.source[self.position + 1 : self.position + 2]
        if character == "." and after and after in "0123456789":
            return self._number()
        end = self._word_end(self.position + 1)
        if not self._terminated(end):
            return self._error(f"bad character {code_point(self.source[end])}")
        if character == "$":
            return self._emit(ItemType.VARIABLE, end)
        return self._emit(ItemType.FIELD if end > self.position + 1 else ItemType.DOT, end)

    def _word(self) -> bool:
        end = self._word_end(self.position)
        if not self._terminated(end):
            return self._error(f"bad character {code_point(self.source[end])}")
        word = self.source[self.position : end]
        if word in KEYWORDS:
            return self._emit(ItemType.KEYWORD, end)
        if word in ("true", "false"):
            return self._emit(ItemType.BOOL, end)
        return self._emit(ItemType.NIL if word == "nil" else ItemType.IDENTIFIER, end)

    def _word_end(self, at: int) -> int:
        while at < len(self.source) and _is_word(self.source[at]):
            at += 1
        return at

    def _terminated(self, at: int) -> bool:
        return (
            at >= len(self.source)
            or self.source[at] in _TERMINATORS
            or self.source.startswith("}}", at)
        )

    def _number(self) -> bool:
        found = _NUMBER.match(self.source, self.position)
        assert found is not None
        end = found.end()
        after = self.source[end : end + 1]
        if after in ("+", "-"):
            return self._error("complex numbers are not supported")
        if after and _is_word(after):
            shown = quoted(self.source[self.position : end + 1])
            return self._error(f"bad number syntax: {shown}")
        return self._emit(ItemType.NUMBER, end)


_SIMPLE: Final = {"=": ItemType.ASSIGN, "|": ItemType.PIPE}


def _is_word(character: str) -> bool:
    return character == "_" or character.isalpha() or character.isdecimal()


def code_point(character: str) -> str:
    """A character as Go's %#U has it."""
    shown = f" '{character}'" if character.isprintable() else ""
    return f"U+{ord(character):04X}{shown}"
