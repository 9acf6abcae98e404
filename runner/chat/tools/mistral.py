"""Mistral's notations: [TOOL_CALLS][{"name": ..., "arguments": ...}], and since 2025
[TOOL_CALLS]NAME[ARGS]{...}, once for each call."""

from __future__ import annotations

import re

from runner.chat.tools.calls import Tools, from_json, in_string, new_call
from runner.chat.tools.marked import MarkedParser
from runner.types import ToolCall

MARKER = "[TOOL_CALLS]"
KEPT = (MARKER, "[ARGS]", "[CALL_ID]")
_CALL = re.compile(
    r"\s*([^\[\s{]{1,256})\s*(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?\s*(\{.*)", re.DOTALL
)


def parser(tools: Tools) -> MarkedParser:
    """A fresh parser. Calls last to the end of the answer."""
    return MarkedParser(MARKER, None, _decode)


def _decode(text: str) -> list[str | ToolCall] | None:
    if text.lstrip().startswith(("[{", "{")):
        return from_json(text)
    calls: list[str | ToolCall] = []
    rest = ""
    for part in text.split(MARKER):
        rest = f"{rest}{MARKER}{part}" if rest else part
        if in_string(rest):  # the mark is part of an argument
            continue
        found = _CALL.match(rest)
        call = None if found is None else new_call(found[1], found[2].strip())
        if call is None:
            return None
        calls.append(call)
        rest = ""
    return None if rest else calls
