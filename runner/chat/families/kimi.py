"""Kimi K2's notation: a section of calls, each functions.NAME:NUMBER with its arguments."""

from __future__ import annotations

import re

from runner.chat.tools.call_stream import CallHeads
from runner.chat.tools.calls import Tools, collect_calls, new_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_CALLS = "<|tool_calls_section_begin|>"
_CALLS_END = "<|tool_calls_section_end|>"
_CALL = "<|tool_call_begin|>"
_CALL_END = "<|tool_call_end|>"
MARKERS = (_CALLS,)
KEPT = (_CALLS, _CALLS_END, _CALL, _CALL_END, "<|tool_call_argument_begin|>")
_EACH = re.compile(
    r"<\|tool_call_begin\|>\s*(?:functions\.)?(\S{1,256}?)(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>(.*?)(?:<\|tool_call_end\|>|\Z)",
    re.DOTALL,
)
_HEAD = (
    r"\s*<\|tool_call_begin\|>\s*(?:functions\.)?([^\s<:]{1,256})(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>\s*(?=\{)"
)
_HEADS = CallHeads.of(_HEAD, rf"\s*<\|tool_call_end\|>{_HEAD}")


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser. A call may stand alone, without the marks around all of them."""
    return DelimitedParser(
        Delimiters(_CALLS, _CALLS_END, _decode, heads=_HEADS),
        Delimiters(
            *(_CALL, _CALL_END, lambda text: _decode(_CALL + text), (_CALLS_END,)),
            heads=_HEADS,
            before=_CALL,
        ),
    )


def _decode(text: str) -> list[str | ToolCall] | None:
    return collect_calls(_EACH, text, lambda found: new_call(found[1], found[2].strip()))
