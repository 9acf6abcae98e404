"""The Hermes notation: <tool_call>{"name": ..., "arguments": {...}}</tool_call>.

Used by Hermes, Qwen 2.5 and 3, ember and others.
"""

from __future__ import annotations

from runner.chat.tools.calls import Tools, from_json
from runner.chat.tools.marked import MarkedParser, Marks
from runner.chat.tools.previewing import HEADS_OF_OBJECT

MARKERS = ("<tool_call>",)
KEPT = (*MARKERS, "</tool_call>")


def parser(tools: Tools) -> MarkedParser:
    """A fresh parser."""
    return MarkedParser(Marks("<tool_call>", "</tool_call>", from_json, heads=HEADS_OF_OBJECT))
