"""Gemma 2 and 3: calls as Python in a Markdown block, ```tool_code.

The models have no notation of their own; this is the one that Google's guides for them use.
"""

from __future__ import annotations

import re

from runner.chat.families.pythonic import python_calls
from runner.chat.tools.calls import Tools, calls_from_value, lenient_loads, only_offered
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_BEGIN = "```tool_code"
MARKERS = ("tool_code",)
KEPT: tuple[str, ...] = ()
_PRINT = re.compile(r"print\((.*)\)\s*\Z", re.DOTALL)


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser. tools: those that were offered."""

    def decode(text: str) -> list[str | ToolCall] | None:
        body = text.strip()
        printed = _PRINT.match(body)
        found = python_calls(printed[1] if printed else body, tools)
        return only_offered(found, tools) or calls_from_value(lenient_loads(body), bare=True)

    return DelimitedParser(Delimiters(_BEGIN, "```", decode))
