"""LFM2's notation: <|tool_call_start|>[NAME(KEY="VALUE"), ...]<|tool_call_end|>."""

from __future__ import annotations

from runner.chat.families.pythonic import python_calls
from runner.chat.tools.calls import Tools, calls_from_json
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_BEGIN = "<|tool_call_start|>"
_END = "<|tool_call_end|>"
MARKERS = (_BEGIN,)
KEPT = (_BEGIN, _END)


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser. tools: those that were offered, for arguments without a name."""

    def decode(text: str) -> list[str | ToolCall] | None:
        return python_calls(text, tools) or calls_from_json(text)

    return DelimitedParser(Delimiters(_BEGIN, _END, decode))
