"""Gemma 4's notation: <|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>,KEY:5}<tool_call|>.

Source: the chat template of google/gemma-4.
"""

from __future__ import annotations

from runner.chat.families.functiongemma import braced_call, inside
from runner.chat.tools.calls import Tools
from runner.chat.tools.delimited import DelimitedParser, Delimiters

_BEGIN = "<|tool_call>"
_END = "<tool_call|>"
_QUOTE = '<|"|>'
_RESPONSE = "<|tool_response>"
MARKERS = (_BEGIN,)
KEPT = (_BEGIN, _END, _QUOTE, _RESPONSE)


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser. The model now and then repeats the end mark, or begins the result itself."""
    marks = Delimiters(
        *(_BEGIN, _END, lambda text: braced_call(text, _QUOTE)),
        noise=(_END, _RESPONSE),
        quoted=inside(_QUOTE),
    )
    return DelimitedParser(marks)
