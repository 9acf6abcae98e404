"""Muse Glimmer's notation: <atem:function_calls> around <atem:invoke name="NAME">, and in it
<atem:parameter name="KEY">VALUE</atem:parameter>.

Values are bare texts; the tool's schema says what they are. The tool list names each function with
a space before it, so that the model may write read.read for read.
"""

from __future__ import annotations

import re

from runner.chat.tools.calls import Tools, collect_calls, name_of, typed_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

MARKERS = ("<atem:function_calls>",)
KEPT = ()
_INVOKE = re.compile(r'<atem:invoke name="([^">\n]{1,256})">(.*?)(?:</atem:invoke>|\Z)', re.DOTALL)
_PARAMETER = re.compile(
    r'<atem:parameter name="([^">\n]{1,256})">(.*?)(?:</atem:parameter>|\Z)', re.DOTALL
)


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser. tools: those that were offered, for the types."""
    names = {name_of(tool) for tool in tools}

    def call(found: re.Match[str]) -> ToolCall | None:
        name = _short(found[1].replace("<|message|>", ""), names)
        return typed_call(name, _PARAMETER.findall(found[2]), tools)

    def decode(text: str) -> list[str | ToolCall] | None:
        return collect_calls(_INVOKE, text, call)

    return DelimitedParser(Delimiters(MARKERS[0], "</atem:function_calls>", decode, quoted=_never))


def _short(name: str, names: set[str | None]) -> str:
    """The name of the tool that is meant: read.read is read, where that was offered."""
    space, _, rest = name.partition(".")
    meant = rest in names and rest.partition(".")[0] == space
    return rest if meant and name not in names else name


def _never(text: str) -> bool:
    return False
