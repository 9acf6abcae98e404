"""Mistral's notations: [TOOL_CALLS][{"name": ..., "arguments": ...}], and since 2025
[TOOL_CALLS]NAME[ARGS]{...}, once for each call."""

from __future__ import annotations

import re

from runner.chat.tools.calls import Tools, from_json, new_call
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


def _decode(text: str) -> list[ToolCall] | None:
    if text.lstrip().startswith(("[{", "{")):
        return from_json(text)
    calls = []
    for part in text.split(MARKER):
        found = _CALL.match(part)
        calls.append(None if found is None else new_call(found[1], found[2].strip()))
    given = [call for call in calls if call is not None]
    return given if len(given) == len(calls) else None
