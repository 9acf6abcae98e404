"""Calls that are the whole answer, or the rest of it after a mark: no mark ends them.

An answer that does not begin like calls is content from its first characters on. Knows no family.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from runner.chat.tools.marked import MAX_CALL_CHARS, begun
from runner.types import ToolCall

Decode = Callable[[str], list[str | ToolCall] | None]


class WholeParser:
    """See runner.chat.tools.ToolParser. The answer is held back for as long as it may be calls."""

    def __init__(self, begins: re.Pattern[str], decode: Decode, mark: str | None = None) -> None:
        """begins: matches all beginnings of an answer that may be calls, however short, the empty
        one included. decode: turns an answer into calls, and text beside them; None: there are
        none. mark: calls may also stand after it, anywhere in the answer."""
        self._begins = begins
        self._decode = decode
        self._mark = mark
        self._pieces: list[str] = []
        self._size = 0
        self._state = self._undecided

    def feed(self, text: str) -> list[str | ToolCall]:
        """See ToolParser."""
        return [part for part in self._state(text) if part != ""] if text else []

    def finish(self) -> list[str | ToolCall]:
        """See ToolParser."""
        held, self._pieces = "".join(self._pieces), []
        if self._state == self._content:
            return [held] if held else []
        body = held
        if self._mark is not None:
            body = held.lstrip().removeprefix(self._mark)
        calls = self._decode(body) if body.strip() else None
        return [*calls] if calls else [held] if held else []

    def _undecided(self, text: str) -> list[str | ToolCall]:
        held = "".join(self._pieces) + text
        start = held.lstrip()
        self._pieces, self._size = [held], len(held)
        if self._mark is not None and (
            start.startswith(self._mark) or (start and self._mark.startswith(start))
        ):
            self._state = self._call if len(start) >= len(self._mark) else self._undecided
            return []
        found = self._begins.match(start)
        if found is None:
            self._pieces, self._state = [], self._content
            return self._content(held)
        if found.lastindex is not None:
            self._state = self._call
        return self._call("")

    def _call(self, text: str) -> list[str | ToolCall]:
        self._pieces.append(text)
        self._size = self._size + len(text) if self._size else sum(map(len, self._pieces))
        if self._size <= MAX_CALL_CHARS:
            return []
        held, self._pieces, self._state = "".join(self._pieces), [], self._content
        self._mark = None  # too much for calls
        return [held]

    def _content(self, text: str) -> list[str | ToolCall]:
        if self._mark is None:
            return [text]
        held = "".join(self._pieces) + text
        at = held.find(self._mark)
        if at >= 0:
            before = held[:at].rstrip()
            self._pieces, self._size, self._state = [held[len(before) :]], 0, self._call
            return [before, *self._call("")]
        keep = begun(held, self._mark)
        before = held[: len(held) - keep]
        keep += len(before) - len(before.rstrip())
        self._pieces = [held[-keep:]] if keep else []
        return [held[: len(held) - keep]]
