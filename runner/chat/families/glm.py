"""The notation of GLM 4.5 and later: <tool_call>NAME, then <arg_key> and <arg_value> in turn.
Laguna writes the same."""

from __future__ import annotations

import re

from runner.chat.tools.calls import Tools, calls_from_json, typed_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

MARKERS = ("<arg_key>",)
KEPT = ("<tool_call>", "</tool_call>", *MARKERS, "</arg_key>", "<arg_value>", "</arg_value>")
_CALL = re.compile(r"\s*([^<\s{]{1,256})\s*((?:<arg_key>.*|\{.*)?)\Z", re.DOTALL)
_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)(?:</arg_value>|\Z)", re.DOTALL)


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser. tools: those that were offered, for the types."""

    def decode(text: str) -> list[str | ToolCall] | None:
        found = _CALL.match(text)
        if found is None or found[2].startswith("{"):
            return calls_from_json(text if found is None else _as_json(found[1], found[2]))
        call = typed_call(found[1], _ARGUMENT.findall(found[2]), tools)
        return None if call is None else [call]

    return DelimitedParser(Delimiters("<tool_call>", "</tool_call>", decode))


def _as_json(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "arguments": {arguments}'
