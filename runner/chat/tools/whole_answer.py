"""Calls that are the whole answer, or the rest of it after a marker: no marker ends them.

An answer that does not begin like calls is content from its first characters on. Knows no family.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from runner.chat.tools.call_stream import CallHeads, CallStream
from runner.chat.tools.delimited import MAX_CALL_CHARS, Part, begun
from runner.types import ToolCall

Decode = Callable[[str], list[str | ToolCall] | None]


class WholeAnswerParser:
    """See runner.chat.family.ToolParser. The answer is held back for as long as it may be calls."""

    def __init__(
        self,
        begins: re.Pattern[str],
        decode: Decode,
        marker: str | None = None,
        heads: CallHeads | None = None,
    ) -> None:
        """begins: matches all beginnings of an answer that may be calls, however short, the empty
        one included. decode: turns an answer into calls, and text beside them; None: there are
        none. marker: calls may also stand after it, anywhere in the answer. heads: what stands
        before arguments that are JSON; None: they are not."""
        self._begins = begins
        self._decode = decode
        self._marker = marker
        self._pieces: list[str] = []
        self._size = 0
        self._state = self._undecided
        self._heads = heads
        self._names: frozenset[str] | None = None
        self._preview: CallStream | None = None
        self._longest = 0  # of what the preview sees

    def stream(self, names: Iterable[str]) -> None:
        """See ToolParser."""
        self._names = frozenset(names)

    def feed(self, text: str) -> list[Part]:
        """See ToolParser."""
        return [part for part in self._state(text) if part != ""] if text else []

    def finish(self) -> list[Part]:
        """See ToolParser."""
        held, self._pieces = "".join(self._pieces), []
        if self._state == self._content:
            return [held] if held else []
        body, preview = self._body(held), self._preview
        calls = self._decode(body) if body.strip() else None
        if preview is not None and preview.begun:
            return [*(preview.settle(calls) if calls else preview.abandon(body[preview.shown :]))]
        return [*calls] if calls else [held] if held else []

    def _body(self, held: str) -> str:
        """held without the marker of calls."""
        return held if self._marker is None else held.lstrip().removeprefix(self._marker)

    def _undecided(self, text: str) -> list[Part]:
        held = "".join(self._pieces) + text
        start = held.lstrip()
        self._pieces, self._size = [held], len(held)
        if self._marker is not None and (
            start.startswith(self._marker) or (start and self._marker.startswith(start))
        ):
            self._state = self._call if len(start) >= len(self._marker) else self._undecided
            return self._call("") if self._state == self._call else []
        found = self._begins.match(start)
        if found is None:
            self._pieces, self._state = [], self._content
            return self._content(held)
        if found.lastindex is not None:
            self._state = self._call
        return self._call("")

    def _call(self, text: str) -> list[Part]:
        self._pieces.append(text)
        self._size = self._size + len(text) if self._size else sum(map(len, self._pieces))
        shown = self._shown(text) if self._state == self._call else []
        if self._size <= MAX_CALL_CHARS:
            return shown
        held, self._pieces, self._state = "".join(self._pieces), [], self._content
        preview, body = self._preview, self._body(held)
        self._marker = None  # too much for calls
        if preview is not None and preview.begun:
            return [*shown, *preview.abandon(""), body[preview.shown :]]
        return [held]

    def _shown(self, text: str) -> list[Part]:
        """What is certain of the calls, up to the longest that may be some."""
        if self._names is None or self._heads is None:
            return []
        if self._preview is None:
            self._preview, held = CallStream(self._heads, self._names), "".join(self._pieces)
            text = self._body(held)
            self._longest = MAX_CALL_CHARS - (len(held) - len(text))
        return self._preview.feed(text[: max(0, self._longest - self._preview.fed)])

    def _content(self, text: str) -> list[Part]:
        if self._marker is None:
            return [text]
        held = "".join(self._pieces) + text
        at = held.find(self._marker)
        if at >= 0:
            before = held[:at].rstrip()
            self._pieces, self._size, self._state = [held[len(before) :]], 0, self._call
            return [before, *self._call("")]
        keep = begun(held, self._marker)
        before = held[: len(held) - keep]
        keep += len(before) - len(before.rstrip())
        self._pieces = [held[-keep:]] if keep else []
        return [held[: len(held) - keep]]
