"""Calls as <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>: MiniMax M2 in
<minimax:tool_call>, DeepSeek V3.2 in <｜DSML｜function_calls> and V4 in <｜DSML｜tool_calls> with
their mark before each word. Their templates put the words together, so that the mark alone tells.

Values are bare texts; the tool's schema says what they are, or string="true" beside the name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from runner.chat.tools.calls import Tools, collect_calls, typed_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_AROUND = (
    ("<minimax:tool_call>", "</minimax:tool_call>"),
    ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
)
MARKERS = ("<minimax:tool_call>", "｜DSML｜")
KEPT = (*(mark for pair in _AROUND for mark in pair), "｜DSML｜")
_WORD = r"(?:｜DSML｜)?"
_INVOKE = re.compile(
    rf'<{_WORD}invoke name="?([^">\n]{{1,256}})"?>(.*?)(?:</{_WORD}invoke>|\Z)', re.DOTALL
)
_PARAMETER = re.compile(
    rf'<{_WORD}parameter name="?([^">\n]{{1,256}})"?(?: string="(true|false)")?>'
    rf"(.*?)(?:</{_WORD}parameter>|\Z)",
    re.DOTALL,
)


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser. tools: those that were offered, for the types."""

    def decode(text: str) -> list[str | ToolCall] | None:
        return collect_calls(_INVOKE, text, lambda found: _call(found[1], found[2], tools))

    return DelimitedParser(*(_marks(begin, end, decode) for begin, end in _AROUND))


def _marks(
    begin: str, end: str, decode: Callable[[str], list[str | ToolCall] | None]
) -> Delimiters:
    return Delimiters(begin, end, decode, quoted=_never)


def _never(text: str) -> bool:
    return False


def _call(name: str, body: str, tools: Tools) -> ToolCall | None:
    found = _PARAMETER.findall(body)
    texts = [(key, value.removeprefix("\n").removesuffix("\n")) for key, _, value in found]
    return typed_call(name, texts, tools, {key for key, said, _ in found if said == "true"})
