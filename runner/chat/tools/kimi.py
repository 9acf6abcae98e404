"""Kimi K2's notation: a section of calls, each functions.NAME:NUMBER with its arguments."""

from __future__ import annotations

import re

from runner.chat.tools.calls import Tools, gathered, new_call
from runner.chat.tools.marked import MarkedParser
from runner.types import ToolCall

MARKER = "<|tool_calls_section_begin|>"
_END = "<|tool_calls_section_end|>"
KEPT = (
    *(MARKER, _END, "<|tool_call_begin|>", "<|tool_call_end|>"),
    "<|tool_call_argument_begin|>",
)
_CALL = re.compile(
    r"<\|tool_call_begin\|>\s*(?:functions\.)?(\S{1,256}?)(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>(.*?)(?:<\|tool_call_end\|>|\Z)",
    re.DOTALL,
)


def parser(tools: Tools) -> MarkedParser:
    """A fresh parser."""
    return MarkedParser(MARKER, _END, _decode)


def _decode(text: str) -> list[str | ToolCall] | None:
    return gathered(_CALL, text, lambda found: new_call(found[1], found[2].strip()))
