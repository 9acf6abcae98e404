"""The Hermes notation: <tool_call>{"name": ..., "arguments": {...}}</tool_call>.

Used by Hermes, Qwen 2.5 and 3, ember and others.
"""

from __future__ import annotations

from runner.chat.tools.calls import Tools, from_json
from runner.chat.tools.marked import MarkedParser

MARKER = "<tool_call>"
KEPT = (MARKER, "</tool_call>")


def parser(tools: Tools) -> MarkedParser:
    """A fresh parser."""
    return MarkedParser(MARKER, "</tool_call>", from_json)
