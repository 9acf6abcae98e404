"""Gemma 2 and 3: calls as Python in a Markdown block, ```tool_code.

The models have no tool format of their own; this is the one of Google's guides for them.
"""

from __future__ import annotations

import re

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import keyword_values
from runner.chat.tools.call_grammar import CallGrammar, python_call
from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.calls import Tools, calls_from_value, lenient_loads, only_offered
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.chat.tools.python_calls import broken_python_calls, python_calls
from runner.types import ToolCall

_BEGIN, _END = "```tool_code", "```"
_PRINT = re.compile(r"print\((.*)\)\s*\Z", re.DOTALL)


def _parser(tools: Tools) -> DelimitedParser:
    def decode(text: str) -> list[str | ToolCall] | None:
        body = text.strip()
        printed = _PRINT.match(body)
        found = python_calls(printed[1] if printed else body, tools)
        return only_offered(found, tools) or calls_from_value(lenient_loads(body), bare=True)

    def decode_cut(text: str) -> list[ToolCall | ToolCallDelta]:
        return broken_python_calls(text.strip().removeprefix("print("), tools)

    return DelimitedParser(Delimiters(_BEGIN, _END, decode, decode_cut=decode_cut))


FAMILY = Family(
    names=("gemma",),
    markers=("tool_code",),
    rank=6,
    tool_parser=_parser,
    call_grammar=CallGrammar(
        (_BEGIN,), python_call, keyword_values, begin='"\\n"', between='"\\n"', end='"\\n```"'
    ),
)
