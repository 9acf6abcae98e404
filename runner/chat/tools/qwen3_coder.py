"""The notation of Qwen3-Coder: <tool_call><function=NAME><parameter=KEY>VALUE</parameter>...

Values are bare texts; the tool's schema says what they are. Newlines beside a value belong to the
notation.
"""

from __future__ import annotations

import re

from runner.chat.tools.calls import Tools, gathered, typed
from runner.chat.tools.marked import MarkedParser
from runner.types import ToolCall

MARKER = "<function="
KEPT = ("<tool_call>", "</tool_call>")
_FUNCTION = re.compile(r"<function=([^>\n]{1,256})>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(
    r"<parameter=([^>\n]{1,256})>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL
)


def parser(tools: Tools) -> MarkedParser:
    """A fresh parser. tools: those that were offered, for the types."""

    def decode(text: str) -> list[str | ToolCall] | None:
        return gathered(_FUNCTION, text, lambda found: _call(found[1], found[2], tools))

    return MarkedParser("<tool_call>", "</tool_call>", decode)


def _call(name: str, body: str, tools: Tools) -> ToolCall | None:
    texts = [
        (key, value.removeprefix("\n").removesuffix("\n"))
        for key, value in _PARAMETER.findall(body)
    ]
    return typed(name, texts, tools)
