"""Llama 3's notation: an answer that is one JSON object with a name and parameters, after
<|python_tag|> or from its first character. Calls may be separated by semicolons, and some of its
models write them as Python."""

from __future__ import annotations

import json
from typing import Any

from runner.chat.families.pythonic import BEGINS, python_calls
from runner.chat.tools.call_stream import JSON_HEAD, CallHeads
from runner.chat.tools.calls import Tools, calls_from_value, lenient_loads, only_offered
from runner.chat.tools.whole_answer import WholeAnswerParser
from runner.types import ToolCall

_MARK = "<|python_tag|>"
MARKERS = (_MARK,)
KEPT = MARKERS
_HEADS = CallHeads.of(rf"\s*{JSON_HEAD}", rf"\s*\}}[;,\s]*{JSON_HEAD}")


def parser(tools: Tools) -> WholeAnswerParser:
    """A fresh parser. tools: those that were offered."""

    def decode(text: str) -> list[str | ToolCall] | None:
        body = text.strip()
        found = calls_from_value(lenient_loads(body), bare=True) or _several(body)
        return found or only_offered(python_calls(body, tools), tools)

    return WholeAnswerParser(BEGINS, decode, _MARK, heads=_HEADS)


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
        while at < len(text) and text[at] in "; ,\n\t\r":
            at += 1
    return calls_from_value(values, bare=True)
