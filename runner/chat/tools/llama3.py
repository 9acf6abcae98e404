"""Llama 3's notation: an answer that is one JSON object with a name and parameters, after
<|python_tag|> or from its first character."""

from __future__ import annotations

import json
from typing import Any

from runner.chat.tools.calls import Tools, from_json
from runner.chat.tools.marked import MAX_CALL_CHARS
from runner.types import ToolCall

MARKER = "<|python_tag|>"
KEPT = (MARKER,)


class Llama3Parser:
    """See runner.chat.tools.ToolParser. Calls may be separated by semicolons."""

    def __init__(self) -> None:
        self._held = ""
        self._content = False  # the answer has begun as something else

    def feed(self, text: str) -> list[str | ToolCall]:
        """See ToolParser."""
        if self._content:
            return [text] if text else []
        self._held += text
        start = self._held.lstrip()
        if len(self._held) <= MAX_CALL_CHARS and (
            start.startswith(("{", MARKER)) or MARKER.startswith(start)
        ):
            return []
        return self._give_up()

    def finish(self) -> list[str | ToolCall]:
        """See ToolParser."""
        body = self._held.strip().removeprefix(MARKER)
        calls = (from_json(body) or _several(body)) if body else None
        if calls:
            self._held = ""
            return [*calls]
        return self._give_up()

    def _give_up(self) -> list[str | ToolCall]:
        held, self._held, self._content = self._held, "", True
        return [held] if held else []


def _several(text: str) -> list[str | ToolCall] | None:
    """Objects one after the other, with semicolons, commas or blanks between them."""
    decoder = json.JSONDecoder()
    values: list[Any] = []
    at = 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        values.append(value)
        at += len(text[at:]) - len(text[at:].lstrip("; ,\n\t\r"))
    return from_json(json.dumps(values))


def parser(tools: Tools) -> Llama3Parser:
    """A fresh parser."""
    return Llama3Parser()
