"""DeepSeek's notations. V3 and R1 write the arguments in a Markdown block after the word
function and the name; V3.1 and later write name and arguments only."""

from __future__ import annotations

import re

from runner.chat.tools.calls import Tools, gathered, new_call
from runner.chat.tools.marked import MarkedParser
from runner.types import ToolCall

MARKER = "<｜tool▁calls▁begin｜>"
_END = "<｜tool▁calls▁end｜>"
KEPT = (MARKER, _END, "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>")
_CALL = re.compile(
    r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)(?:<｜tool▁call▁end｜>|\Z)", re.DOTALL
)
_BLOCK = re.compile(r"\s*(\S{1,256})\s*```(?:json)?\s*(.*?)\s*(?:```\s*|\Z)\Z", re.DOTALL)


def parser(tools: Tools) -> MarkedParser:
    """A fresh parser."""
    return MarkedParser(MARKER, _END, _decode)


def _decode(text: str) -> list[str | ToolCall] | None:
    return gathered(_CALL, text, _call)


def _call(found: re.Match[str]) -> ToolCall | None:
    first, second = found[1], found[2]
    block = _BLOCK.match(second) if first.strip() == "function" else None
    name, arguments = (block[1], block[2]) if block else (first, second)
    return new_call(name, arguments.strip())
