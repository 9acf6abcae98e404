"""Calls as call:NAME{KEY:VALUE,...} between two markers: keys are bare, texts stand between two
of a quotation marker, which no text holds. Knows no family."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from runner.chat.tools.argument_grammar import OfferedFunction, braced_values, lark_text
from runner.chat.tools.call_grammar import CallGrammar
from runner.chat.tools.call_stream import ToolCallDelta, broken_off
from runner.chat.tools.calls import Tools, new_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.chat.tools.literals import LiteralReader, NotLiteral
from runner.types import ToolCall

_CALL = re.compile(r"\s*+(?:call:)?+\s*+([^\s{:]{1,256}+)\s*+(?=\{)")


def braced_parser(
    begin: str, end: str, quote: str, noise: tuple[str, ...]
) -> Callable[[Tools], DelimitedParser]:
    """Makes parsers of calls between begin and end. noise: see Delimiters."""

    def parser(_tools: Tools) -> DelimitedParser:
        return DelimitedParser(
            Delimiters(
                begin,
                end,
                decode,
                noise,
                quoted=lambda text: text.count(quote) % 2 == 1,
                decode_cut=decode_cut,
            )
        )

    def decode(text: str) -> list[str | ToolCall] | None:
        return _decode(text, quote)

    def decode_cut(text: str) -> list[ToolCall | ToolCallDelta]:
        return _decode_cut(text, quote)

    return parser


def braced_grammar(begin: str, end: str, quote: str) -> CallGrammar:
    """The grammar of calls between begin and end."""
    return CallGrammar(
        (begin, end, quote), _call, braced_values("marker_2"), between="", repeated=True
    )


def _call(each: OfferedFunction, rule: str) -> str:
    return f'{lark_text(f"call:{each.name}{{")} {rule} "}}" marker_1'


def _decode(text: str, quote: str) -> list[str | ToolCall] | None:
    found = _CALL.match(text)
    if found is None:
        return None
    reader = LiteralReader(text[found.end() :], quote)
    try:
        arguments = reader.object()
    except NotLiteral:
        return None
    while reader.skip("}"):
        pass
    call = new_call(found[1], arguments) if reader.ended() else None
    return None if call is None else [call]


def _decode_cut(text: str, quote: str) -> list[ToolCall | ToolCallDelta]:
    found = _CALL.match(text)
    if found is None:
        return []
    arguments: dict[str, Any] = {}
    try:
        LiteralReader(text[found.end() :], quote, cut=True).object(arguments)
    except NotLiteral:
        return [broken_off(found[1], arguments)]
    call = new_call(found[1], arguments)
    return [] if call is None else [call]
