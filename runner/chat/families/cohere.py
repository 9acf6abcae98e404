"""Cohere's Command: <|START_ACTION|>[{"tool_name": ..., "parameters": {...}}]<|END_ACTION|>."""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json
from runner.chat.tools.call_grammar import CallGrammar, json_call
from runner.chat.tools.call_stream import HEADS_OF_LIST
from runner.chat.tools.calls import calls_from_json
from runner.chat.tools.delimited import DelimitedParser, Delimiters

_AROUND = ("<|START_ACTION|>", "<|END_ACTION|>")
_CALL_NUMBER = r'("\"tool_call_id\":" blank "\"" /[0-9]{1,3}/ "\"," blank)?'

FAMILY = Family(
    thinking_names=("cohere",),
    markers=_AROUND[:1],
    special_tokens=_AROUND,
    reasoning_tags=("<|START_THINKING|>", "<|END_THINKING|>"),
    tool_parser=lambda _tools: DelimitedParser(
        Delimiters(*_AROUND, calls_from_json, heads=HEADS_OF_LIST)
    ),
    call_grammar=CallGrammar(
        _AROUND,
        json_call("tool_name", "parameters", _CALL_NUMBER),
        as_json,
        begin='blank "[" blank',
        between='"," blank',
        end='blank "]" blank marker_1',
    ),
)
