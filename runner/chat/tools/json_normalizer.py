"""A JSON object as it arrives, in the words that json.dumps has for it.

What is written is a beginning of what json.dumps(json.loads(text), ensure_ascii=False) gives once
the text is whole: blanks and escapes are the usual ones, a comma waits for what it stands before,
and a number for its end. A key that is written twice stays twice. Text that is not JSON ends it.
"""

from __future__ import annotations

import json
import re
from typing import Final, Literal

from runner.chat.tools.literals import MAX_DEPTH

_RUN = re.compile(r'[^"\\\x00-\x1f]+')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_HIGH_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_LOW_HALF = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_ESCAPE_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_BLANKS = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"[-+.0-9a-zA-Z]+")
_MAX_SCALAR_CHARS: Final = 4400  # Python reads no integer of more than 4,300 digits

State = Literal["value", "item", "key", "colon", "after", "string", "done", "broken"]


class JsonNormalizer:
    """One object. Text after its end is left in rest."""

    def __init__(self) -> None:
        self.rest = ""  # what came and is not written
        self._state: State = "value"
        self._open: list[str] = []  # brackets that close what is open, the outermost first
        self._in_key = False
        self._fresh = True  # nothing stands in the innermost brackets
        self._comma = False

    @property
    def done(self) -> bool:
        """Whether the object is whole."""
        return self._state == "done"

    @property
    def broken(self) -> bool:
        """Whether text came that is not JSON."""
        return self._state == "broken"

    @property
    def unwritten(self) -> str:
        """What came of the object and is not written, as it came."""
        return ("," if self._comma else "") + self.rest

    def feed(self, text: str) -> str:
        """What text adds."""
        self.rest += text
        out: list[str] = []
        while self.rest and (written := self._take()) is not None:
            out.append(written)
        return "".join(out)

    def _take(self) -> str | None:
        """The next piece that is certain, perhaps empty; None: more must come first."""
        if self._state == "string":
            return self._take_string()
        if self._state in ("done", "broken"):
            return None
        blanks = _BLANKS.match(self.rest)
        self.rest = self.rest[blanks.end() if blanks else 0 :]
        return self._take_mark(self.rest[0]) if self.rest else None

    def _take_mark(self, first: str) -> str | None:
        if first in "}]" and self._open and self._open[-1] == first:
            # A comma before a closing bracket means nothing, and is left out.
            if self._state == "after" or (self._state in ("key", "item") and self._may_close()):
                self._comma, self.rest = False, self.rest[1:]
                self._open.pop()
                return self._ended(first)
            return self._break()
        if self._state == "after":
            if first != "," or self._comma:
                return self._break()
            self._comma, self._state = True, "key" if self._open[-1] == "}" else "item"
            self.rest = self.rest[1:]
            return ""
        if self._state == "colon":
            if first != ":":
                return self._break()
            self._state, self.rest = "value", self.rest[1:]
            return ": "
        if self._state == "key" and first != '"':
            return self._break()
        return self._take_value(first)

    def _may_close(self) -> bool:
        return self._comma or self._fresh

    def _take_value(self, first: str) -> str | None:
        if first == '"':
            self._in_key, self._state = self._state == "key", "string"
            self.rest = self.rest[1:]
            return self._separator() + '"'
        if not self._open and first != "{":
            return self._break()
        if first in "{[":
            if len(self._open) >= MAX_DEPTH:
                return self._break()
            self._open.append("}" if first == "{" else "]")
            before = self._separator()
            self._state, self._fresh = ("key" if first == "{" else "item"), True
            self.rest = self.rest[1:]
            return before + first
        return self._take_scalar()

    def _take_scalar(self) -> str | None:
        found = _SCALAR.match(self.rest)
        if found is None or found.end() > _MAX_SCALAR_CHARS:
            return self._break()
        if found.end() == len(self.rest):
            return None
        try:
            value = json.dumps(json.loads(found[0]), allow_nan=False)
        except ValueError:
            return self._break()
        self.rest = self.rest[found.end() :]
        return self._separator() + self._ended(value)

    def _separator(self) -> str:
        self._fresh = False
        comma, self._comma = self._comma, False
        return ", " if comma else ""

    def _ended(self, text: str) -> str:
        """A value has ended with text."""
        self._state, self._fresh = ("after" if self._open else "done"), False
        return text

    def _break(self) -> str | None:
        """What is not JSON stays in rest; nothing more is written."""
        self._state = "broken"
        return None

    def _take_string(self) -> str | None:
        run = _RUN.match(self.rest)
        if run is not None:
            self.rest = self.rest[run.end() :]
            return run[0]
        if self.rest[0] == '"':
            self.rest = self.rest[1:]
            if self._in_key:
                self._state = "colon"
                return '"'
            return self._ended('"')
        return self._take_escape()

    def _take_escape(self) -> str | None:
        found = _ESCAPE.match(self.rest)
        if found is None:
            return None if _ESCAPE_BEGUN.match(self.rest) else self._break()
        end, code = found.end(), found[0]
        if _HIGH_HALF.fullmatch(code):
            second = _LOW_HALF.match(self.rest, end)
            if second is None and (end == len(self.rest) or _ESCAPE_BEGUN.match(self.rest, end)):
                return None  # its other half may follow
            if second is not None:
                end, code = second.end(), code + second[0]
        self.rest = self.rest[end:]
        character: str = json.loads(f'"{code}"')
        if "\ud800" <= character <= "\udfff":
            return "?"  # half a pair, which no answer can carry
        return json.dumps(character, ensure_ascii=False)[1:-1]
