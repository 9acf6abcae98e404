"""Granite 3's and Phi 4's notation: <|tool_call|> and a JSON list of calls, to the end of the
answer or to <|/tool_call|>."""

from __future__ import annotations

from runner.chat.tools.call_stream import HEADS_OF_LIST
from runner.chat.tools.calls import Tools, calls_from_json
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_BEGIN = "<|tool_call|>"
_END = "<|/tool_call|>"
MARKERS = (_BEGIN,)
KEPT = (_BEGIN, _END)


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser."""
    return DelimitedParser(Delimiters(_BEGIN, None, _decode, heads=HEADS_OF_LIST))


def _decode(text: str) -> list[str | ToolCall] | None:
    body, _, after = text.partition(_END)
    calls = calls_from_json(body)
    return [*calls, after.lstrip()] if calls and after.strip() else calls
