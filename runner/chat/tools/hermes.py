"""The Hermes notation: <tool_call>{"name": ..., "arguments": {...}}</tool_call>.

Used by Hermes, Qwen 2.5 and 3, ember and others. Text that only looks like a call is content:
nothing a model wrote is lost. Every character is looked at a bounded number of times.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from runner.types import ToolCall

MARKER = "<tool_call>"
_END = "</tool_call>"
MAX_CALL_CHARS = 65_536  # a longer one is content


class HermesParser:
    """See runner.chat.tools.ToolParser."""

    def __init__(self) -> None:
        self._held = ""
        self._searched = 0  # of _held inside a call: no end tag before here
        self._inside = False
        self._after_call = False  # white space here only separates calls

    def feed(self, text: str) -> list[str | ToolCall]:
        """See ToolParser."""
        self._held += text
        parts: list[str | ToolCall] = []
        while (part := self._take()) is not None:
            if part != "":
                parts.append(part)
        return parts

    def finish(self) -> list[str | ToolCall]:
        """See ToolParser. A call whose end tag is missing counts if it is complete."""
        rest, self._held = self._held, ""
        if self._inside:
            self._inside = False
            call = _call(rest[len(MARKER) :])
            return [call] if call is not None else [rest]
        return [rest] if rest else []

    def _take(self) -> str | ToolCall | None:
        """The next part that is complete, "" for nothing to show but more to do, or None."""
        return self._take_call() if self._inside else self._take_content()

    def _take_content(self) -> str | None:
        if self._after_call:
            self._held = self._held.lstrip()
            self._after_call = not self._held
        start = self._held.find(MARKER)
        if start >= 0:
            content, self._held = self._held[:start].rstrip(), self._held[start:]
            self._inside, self._searched = True, len(MARKER)
            return content
        keep = _possible_start(self._held)
        content, self._held = self._held[: len(self._held) - keep], self._held[-keep:] * bool(keep)
        return content or None

    def _take_call(self) -> str | ToolCall | None:
        end = self._held.find(_END, self._searched)
        if end < 0:
            self._searched = max(len(MARKER), len(self._held) - len(_END))
            return self._give_up(len(self._held)) if len(self._held) > MAX_CALL_CHARS else None
        call = _call(self._held[len(MARKER) : end])
        if call is None:
            return self._give_up(end + len(_END))
        self._inside, self._held = False, self._held[end + len(_END) :]
        self._after_call = True
        return call

    def _give_up(self, length: int) -> str:
        content, self._held = self._held[:length], self._held[length:]
        self._inside = False
        return content


def _possible_start(text: str) -> int:
    """How many characters at the end may be white space before a call, or its tag begun."""
    for size in range(min(len(MARKER) - 1, len(text)), 0, -1):
        if text.endswith(MARKER[:size]):
            break
    else:
        size = 0
    before = text[: len(text) - size]
    return size + len(before) - len(before.rstrip())


def _call(text: str) -> ToolCall | None:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if not isinstance(arguments, dict):
        return None
    dumped = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(f"call_{secrets.token_hex(8)}", value["name"], dumped)
