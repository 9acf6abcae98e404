"""Hermes, Qwen 2.5 and 3, ember: <tool_call>{"name": ..., "arguments": {...}}</tool_call>."""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json
from runner.chat.tools.call_grammar import NAMED_CALL, CallGrammar
from runner.chat.tools.call_stream import HEADS_OF_OBJECT
from runner.chat.tools.calls import calls_from_json
from runner.chat.tools.delimited import DelimitedParser, Delimiters

_AROUND = ("<tool_call>", "</tool_call>")

FAMILY = Family(
    names=("hermes", "qwen3", "qwen3-vl-instruct"),
    thinking_names=("qwen3-thinking", "qwen3-vl-thinking"),
    markers=_AROUND[:1],
    rank=3,
    special_tokens=_AROUND,
    tool_parser=lambda _tools: DelimitedParser(
        Delimiters(*_AROUND, calls_from_json, heads=HEADS_OF_OBJECT)
    ),
    call_grammar=CallGrammar(
        _AROUND,
        lambda each, rule: f"blank {NAMED_CALL(each, rule)} blank marker_1",
        as_json,
        repeated=True,
    ),
)
