"""FunctionGemma's notation:
<start_function_call>call:NAME{KEY:<escape>TEXT<escape>,KEY:5}<end_function_call>.

Source: the chat template of google/functiongemma-270m-it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from runner.chat.tools.calls import Tools, new_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.chat.tools.literals import LiteralReader, NotLiteral
from runner.types import ToolCall

_BEGIN = "<start_function_call>"
_END = "<end_function_call>"
_QUOTE = "<escape>"
MARKERS = (_BEGIN,)
KEPT = (_BEGIN, _END, _QUOTE, "<start_function_response>")
_CALL = re.compile(r"\s*(?:call:)?\s*([^\s{:]{1,256})\s*(?=\{)")


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser."""
    marks = Delimiters(
        *(_BEGIN, _END, lambda text: braced_call(text, _QUOTE)),
        noise=("<start_function_response>",),
        quoted=inside(_QUOTE),
    )
    return DelimitedParser(marks)


def braced_call(text: str, quote: str) -> list[str | ToolCall] | None:
    """The call that text is, its texts between two of quote; None when it is none."""
    found = _CALL.match(text)
    if found is None:
        return None
    reader = LiteralReader(text[found.end() :], quote)
    try:
        arguments = reader.object()
    except NotLiteral:
        return None
    call = new_call(found[1], arguments) if reader.ended() else None
    return None if call is None else [call]


def inside(quote: str) -> Callable[[str], bool]:
    """Whether a text ends between two of quote."""
    return lambda text: text.count(quote) % 2 == 1
