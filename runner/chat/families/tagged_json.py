"""Calls as JSON between markers that few models have: Nemotron Nano 2 writes <TOOLCALL>, Apriel
and MiniMax M1 <tool_calls>, GigaChat 3.1 <|function_call|>, Apertus <|tools_prefix|> with {NAME:
ARGUMENTS}. What is between is an object, a list of them, or one object in each line.
"""

from __future__ import annotations

from typing import Any, Final

from runner.chat.family import Family
from runner.chat.tools.call_stream import HEADS_OF_LIST
from runner.chat.tools.calls import Tools, calls_from_json, calls_from_value, lenient_loads
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_AROUND: Final = (
    ("<TOOLCALL>", "</TOOLCALL>"),
    ("<tool_calls>", "</tool_calls>"),
    ("<|tools_prefix|>", "<|tools_suffix|>"),
    ("<|function_call|>", None),
)
_KEYS: Final = frozenset({"name", "arguments", "parameters", "function", "tool_name", "id", "type"})


def _parser(_tools: Tools) -> DelimitedParser:
    return DelimitedParser(
        *(Delimiters(begin, end, _decode, heads=HEADS_OF_LIST) for begin, end in _AROUND)
    )


def _decode(text: str) -> list[str | ToolCall] | None:
    return (
        calls_from_json(text)
        or calls_from_value(_by_name(lenient_loads(text.strip())))
        or _by_line(text)
    )


def _by_name(value: Any) -> Any:
    """{NAME: ARGUMENTS} as objects with name and arguments; other values as they are."""
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) and not _KEYS & each.keys() for each in items):
        return None
    pairs = [pair for each in items for pair in each.items()]
    return [{"name": name, "arguments": arguments} for name, arguments in pairs]


def _by_line(text: str) -> list[str | ToolCall] | None:
    lines = [lenient_loads(line) for line in text.strip().splitlines() if line.strip()]
    return calls_from_value(lines) if len(lines) > 1 else None


FAMILY = Family(
    markers=tuple(begin for begin, _ in _AROUND),
    rank=1,
    special_tokens=tuple(text for pair in _AROUND for text in pair if text is not None),
    tool_parser=_parser,
)
