"""Llama 3: an answer that is one JSON object with a name and parameters, after <|python_tag|> or
from its first character. Calls may be separated by semicolons, and some models write Python."""

from __future__ import annotations

import json
from typing import Any

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json
from runner.chat.tools.call_grammar import CallGrammar, json_call
from runner.chat.tools.call_stream import JSON_HEAD, CallHeads
from runner.chat.tools.calls import Tools, calls_from_value, lenient_loads, only_offered
from runner.chat.tools.python_calls import CALLS_BEGIN, python_calls
from runner.chat.tools.whole_answer import WholeAnswerParser
from runner.types import ToolCall

_TAG = "<|python_tag|>"
_HEADS = CallHeads.of(rf"\s*{JSON_HEAD}", rf"\s*\}}[;,\s]*{JSON_HEAD}")


def _parser(tools: Tools) -> WholeAnswerParser:
    def decode(text: str) -> list[str | ToolCall] | None:
        body = text.strip()
        found = calls_from_value(lenient_loads(body), bare=True) or _several(body)
        return found or only_offered(python_calls(body, tools), tools)

    return WholeAnswerParser(CALLS_BEGIN, decode, _TAG, heads=_HEADS)


def _several(text: str) -> list[str | ToolCall] | None:
    """Objects one after the other, with semicolons, commas or blanks between them."""
    decoder = json.JSONDecoder()
    values: list[Any] = []
    at = 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        values.append(value)
        while at < len(text) and text[at] in "; ,\n\t\r":
            at += 1
    return calls_from_value(values, bare=True)


FAMILY = Family(
    names=("llama3",),
    markers=(_TAG,),
    rank=5,
    special_tokens=(_TAG,),
    tool_parser=_parser,
    call_grammar=CallGrammar((), json_call("name", "parameters"), as_json, between='";" blank'),
)
