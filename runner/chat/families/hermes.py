"""The Hermes notation: <tool_call>{"name": ..., "arguments": {...}}</tool_call>.

Used by Hermes, Qwen 2.5 and 3, ember and others.
"""

from __future__ import annotations

from runner.chat.tools.call_stream import HEADS_OF_OBJECT
from runner.chat.tools.calls import Tools, calls_from_json
from runner.chat.tools.delimited import DelimitedParser, Delimiters

MARKERS = ("<tool_call>",)
KEPT = (*MARKERS, "</tool_call>")


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser."""
    return DelimitedParser(
        Delimiters("<tool_call>", "</tool_call>", calls_from_json, heads=HEADS_OF_OBJECT)
    )
