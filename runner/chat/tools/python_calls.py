"""Calls written as Python: NAME(KEY=VALUE, ...). Knows no family."""

from __future__ import annotations

from collections.abc import Callable

from runner.chat.tools.calls import MAX_CALLS, Tools, calls_from_json, new_call, properties_of
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.chat.tools.literals import LiteralReader, NotLiteral
from runner.types import ToolCall


def python_parser(begin: str, end: str) -> Callable[[Tools], DelimitedParser]:
    """Makes parsers of calls between begin and end. tools: those that were offered, for arguments
    without a name."""

    def parser(tools: Tools) -> DelimitedParser:
        def decode(text: str) -> list[str | ToolCall] | None:
            return python_calls(text, tools) or calls_from_json(text)

        return DelimitedParser(Delimiters(begin, end, decode))

    return parser


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
