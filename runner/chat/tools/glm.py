"""The notation of GLM 4.5 and later: <tool_call>NAME, then <arg_key> and <arg_value> in turn."""

from __future__ import annotations

import re

from runner.chat.tools.calls import Tools, typed
from runner.chat.tools.marked import MarkedParser
from runner.types import ToolCall

MARKER = "<arg_key>"
KEPT = ("<tool_call>", "</tool_call>", MARKER, "</arg_key>", "<arg_value>", "</arg_value>")
_CALL = re.compile(r"\s*([^<\s]{1,256})\s*((?:<arg_key>.*)?)\Z", re.DOTALL)
_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)(?:</arg_value>|\Z)", re.DOTALL)


def parser(tools: Tools) -> MarkedParser:
    """A fresh parser. tools: those that were offered, for the types."""

    def decode(text: str) -> list[str | ToolCall] | None:
        found = _CALL.match(text)
        if found is None:
            return None
        call = typed(found[1], _ARGUMENT.findall(found[2]), tools)
        return None if call is None else [call]

    return MarkedParser("<tool_call>", "</tool_call>", decode)
