"""DeepSeek's notations. V3 and R1 write the arguments in a Markdown block after the word
function and the name; V3.1 and later write name and arguments only. Cogito writes as V3 does."""

from __future__ import annotations

import re

from runner.chat.tools.call_stream import CallHeads
from runner.chat.tools.calls import Tools, collect_calls, new_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_CALLS = "<｜tool▁calls▁begin｜>"
_CALLS_END = "<｜tool▁calls▁end｜>"
_CALL = "<｜tool▁call▁begin｜>"
_CALL_END = "<｜tool▁call▁end｜>"
MARKERS = (_CALLS,)
KEPT = (_CALLS, _CALLS_END, _CALL, _CALL_END, "<｜tool▁sep｜>")
_EACH = re.compile(f"{_CALL}([^<]{{0,256}})<｜tool▁sep｜>(.*?)(?:{_CALL_END}|\\Z)", re.DOTALL)
_HEAD = (
    rf"\s*{_CALL}\s*(?:function\s*<｜tool▁sep｜>\s*(?=\S+\s*```)|(?=[^<]*<｜tool▁sep｜>\s*\{{))"
    r"([^<`\s]{1,256})\s*(?:<｜tool▁sep｜>|```(?:json)?)\s*(?=\{)"
)
_HEADS = CallHeads.of(_HEAD, rf"\s*(?:```\s*)?(?:{_CALL_END})?{_HEAD}")
_BLOCK = re.compile(r"\s*(\S{1,256})\s*```(?:json)?\s*(.*?)\s*(?:```\s*|\Z)\Z", re.DOTALL)


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser. A call may stand alone, without the marks around all of them."""
    return DelimitedParser(
        Delimiters(_CALLS, _CALLS_END, _decode, heads=_HEADS),
        Delimiters(
            *(_CALL, _CALL_END, lambda text: _decode(_CALL + text), (_CALLS_END,)),
            heads=_HEADS,
            before=_CALL,
        ),
    )


def _decode(text: str) -> list[str | ToolCall] | None:
    return collect_calls(_EACH, text, _call)


def _call(found: re.Match[str]) -> ToolCall | None:
    first, second = found[1], found[2]
    block = _BLOCK.match(second) if first.strip() == "function" else None
    name, arguments = (block[1], block[2]) if block else (first, second)
    return new_call(name, arguments.strip())
