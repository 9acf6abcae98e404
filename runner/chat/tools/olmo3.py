"""OLMo 3's notation: <function_calls>, one call as Python on each line, </function_calls>."""

from __future__ import annotations

from runner.chat.tools.calls import Tools, from_json
from runner.chat.tools.marked import MarkedParser, Marks
from runner.chat.tools.pythonic import python_calls
from runner.types import ToolCall

_BEGIN = "<function_calls>"
_END = "</function_calls>"
MARKERS = (_BEGIN,)
KEPT = (_BEGIN, _END)


def parser(tools: Tools) -> MarkedParser:
    """A fresh parser. tools: those that were offered, for arguments without a name."""

    def decode(text: str) -> list[str | ToolCall] | None:
        return python_calls(text, tools) or from_json(text)

    return MarkedParser(Marks(_BEGIN, _END, decode))
