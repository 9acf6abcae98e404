"""Llama 3: JSON objects with a name and parameters, after <|python_tag|> or bare, with semicolons
between them. Some models write Python."""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json
from runner.chat.tools.call_grammar import CallGrammar, json_call
from runner.chat.tools.call_stream import JSON_HEAD, CallHeads
from runner.chat.tools.calls import Tools
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.chat.tools.unmarked_calls import UnmarkedCalls, calls_in

_TAG = "<|python_tag|>"
_HEADS = CallHeads.of(rf"\s*+{JSON_HEAD}", rf"\s*\}}[;,\s]*{JSON_HEAD}")


def _parser(tools: Tools) -> UnmarkedCalls:
    marked = Delimiters(_TAG, None, lambda text: calls_in(text, tools), heads=_HEADS)
    return UnmarkedCalls(tools, DelimitedParser(marked), python=True)


FAMILY = Family(
    names=("llama3",),
    markers=(_TAG,),
    rank=5,
    special_tokens=(_TAG,),
    tool_parser=_parser,
    call_grammar=CallGrammar((), json_call("name", "parameters"), as_json, between='";" blank'),
)
