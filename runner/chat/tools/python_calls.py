"""Calls written as Python: NAME(KEY=VALUE, ...). Knows no family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runner.chat.tools.call_stream import ToolCallDelta, broken_off
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

        def decode_cut(text: str) -> list[ToolCall | ToolCallDelta]:
            return broken_python_calls(text, tools)

        return DelimitedParser(Delimiters(begin, end, decode, decode_cut=decode_cut))

    return parser


def python_calls(text: str, tools: Tools) -> list[str | ToolCall] | None:
    """Calls one after the other, in brackets or not; None when the text is anything else."""
    reader = LiteralReader(text)
    reader.skip("[")
    calls: list[str | ToolCall] = []
    try:
        while not reader.ended() and not (reader.skip("]") or reader.skip(")")):
            call = _call(reader, tools)
            if call is None or len(calls) >= MAX_CALLS:
                return None
            calls.append(call)
            reader.skip(",") or reader.skip(";")
    except NotLiteral:
        return None
    while reader.skip("]") or reader.skip(")"):
        pass
    return calls if calls and reader.ended() else None


def broken_python_calls(text: str, tools: Tools) -> list[ToolCall | ToolCallDelta]:
    """The same of a text that was broken off; the last call may have no end."""
    reader = LiteralReader(text, cut=True)
    reader.skip("[")
    calls: list[ToolCall | ToolCallDelta] = []
    try:
        while not reader.ended() and not reader.skip("]") and len(calls) < MAX_CALLS:
            name, arguments = reader.word(), dict[str, Any]()
            if not reader.skip("("):
                break
            try:
                call = new_call(name, reader.call(list(properties_of(name, tools)), arguments))
            except NotLiteral:
                return [*calls, broken_off(name, arguments)]
            calls += [] if call is None else [call]
            reader.skip(",") or reader.skip(";")
    except NotLiteral:
        pass
    return calls


def _call(reader: LiteralReader, tools: Tools) -> ToolCall | None:
    name = reader.word()
    if not reader.skip("("):
        return None
    return new_call(name, reader.call(list(properties_of(name, tools))))
