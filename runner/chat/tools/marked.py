"""Calls that stand between two marks: what most notations have in common.

Text that only looks like a call is content: nothing a model wrote is lost. Every character is
looked at a bounded number of times. What stands between the marks is the family's own matter.
"""

from __future__ import annotations

from collections.abc import Callable

from runner.chat.tools.calls import in_string
from runner.types import ToolCall

MAX_CALL_CHARS = 65_536  # a longer one is content

Decode = Callable[[str], list[str | ToolCall] | None]


class MarkedParser:
    """See runner.chat.tools.ToolParser. A call whose end mark is missing counts if it is
    complete; end None: calls last to the end of the text."""

    def __init__(self, begin: str, end: str | None, decode: Decode) -> None:
        """decode turns what stands between the marks into calls, and text beside them; None:
        there are none."""
        self._begin = begin
        self._end = end
        self._decode = decode
        self._held = ""
        self._searched = 0  # of _held inside a call: no end mark before here
        self._inside = False
        self._after_call = False  # white space here only separates calls

    def feed(self, text: str) -> list[str | ToolCall]:
        """See ToolParser."""
        self._held += text
        parts: list[str | ToolCall] = []
        while (found := self._take()) is not None:
            parts += [part for part in found if part != ""]
        return parts

    def finish(self) -> list[str | ToolCall]:
        """See ToolParser."""
        rest, self._held = self._held, ""
        if self._inside:
            self._inside = False
            calls = self._decode(rest[len(self._begin) :])
            return [*calls] if calls else [rest]
        return [rest] if rest else []

    def _take(self) -> list[str | ToolCall] | None:
        """The next parts that are complete, perhaps nothing to show but more to do, or None."""
        return self._take_call() if self._inside else self._take_content()

    def _take_content(self) -> list[str | ToolCall] | None:
        if self._after_call:
            self._held = self._held.lstrip()
            self._after_call = not self._held
        start = self._held.find(self._begin)
        if start >= 0:
            content, self._held = self._held[:start].rstrip(), self._held[start:]
            self._inside, self._searched = True, len(self._begin)
            return [content]
        keep = possible_start(self._held, self._begin)
        content, self._held = self._held[: len(self._held) - keep], self._held[-keep:] * bool(keep)
        return [content] if content else None

    def _take_call(self) -> list[str | ToolCall] | None:
        end = -1 if self._end is None else self._held.find(self._end, self._searched)
        if end < 0 or self._end is None:
            self._searched = max(len(self._begin), len(self._held) - len(self._end or ""))
            return self._give_up(len(self._held)) if len(self._held) > MAX_CALL_CHARS else None
        body = self._held[len(self._begin) : end]
        calls = self._decode(body)
        if not calls and in_string(body) and len(self._held) <= MAX_CALL_CHARS:
            self._searched = end + len(self._end)  # the mark is part of an argument
            return []
        if not calls:
            return self._give_up(end + len(self._end))
        self._inside, self._held = False, self._held[end + len(self._end) :]
        self._after_call = True
        return [*calls]

    def _give_up(self, length: int) -> list[str | ToolCall]:
        content, self._held = self._held[:length], self._held[length:]
        self._inside = False
        return [content]


def possible_start(text: str, mark: str) -> int:
    """How many characters at the end may be white space before a call, or its mark begun."""
    for size in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:size]):
            break
    else:
        size = 0
    before = text[: len(text) - size]
    return size + len(before) - len(before.rstrip())
