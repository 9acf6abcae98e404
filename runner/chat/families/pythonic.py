"""Calls written as Python: an answer that is [NAME(KEY=VALUE, ...), ...], as Llama 3.2 and 4 are
asked for, between <|python_start|> and <|python_end|> or bare.

A bare answer counts when all its names are of tools that were offered.
"""

from __future__ import annotations

import re

from runner.chat.tools.calls import (
    MAX_CALLS,
    Tools,
    calls_from_value,
    lenient_loads,
    new_call,
    only_offered,
    properties_of,
)
from runner.chat.tools.literals import LiteralReader, NotLiteral
from runner.chat.tools.whole_answer import WholeAnswerParser
from runner.types import ToolCall

_MARK = "<|python_start|>"
_END = "<|python_end|>"
MARKERS = ("[func_name1(", _MARK)
KEPT = (_MARK, _END)
BEGINS = re.compile(r"(\{)|\[\s*(?:[^\W\d][\w.-]*\s*(?:(\()|\Z)|(\{)|\Z)|\Z")
"""What an answer begins with that may be calls: a bracket with a name or an object, an object."""


def parser(tools: Tools) -> WholeAnswerParser:
    """A fresh parser. tools: those that were offered."""

    def decode(text: str) -> list[str | ToolCall] | None:
        body = text.strip().removesuffix(_END)
        return only_offered(python_calls(body, tools), tools) or calls_from_value(
            lenient_loads(body), bare=True
        )

    return WholeAnswerParser(BEGINS, decode, _MARK)


def python_calls(text: str, tools: Tools) -> list[str | ToolCall] | None:
    """Calls one after the other, in brackets or not; None when the text is anything else."""
    reader = LiteralReader(text)
    reader.skip("[")
    calls: list[str | ToolCall] = []
    try:
        while not reader.ended() and not reader.skip("]"):
            call = _call(reader, tools)
            if call is None or len(calls) >= MAX_CALLS:
                return None
            calls.append(call)
            reader.skip(",") or reader.skip(";")
    except NotLiteral:
        return None
    return calls if calls and reader.ended() else None


def _call(reader: LiteralReader, tools: Tools) -> ToolCall | None:
    name = reader.word()
    if not reader.skip("("):
        return None
    return new_call(name, reader.call(list(properties_of(name, tools))))
