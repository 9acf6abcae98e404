"""Kimi K2: a section of calls, each functions.NAME:NUMBER with its arguments."""

from __future__ import annotations

import re

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json, lark_text
from runner.chat.tools.call_grammar import CallGrammar
from runner.chat.tools.call_stream import CallHeads
from runner.chat.tools.calls import collect_calls, new_call
from runner.chat.tools.delimited import DelimitedParser
from runner.types import ToolCall

_CALLS = "<|tool_calls_section_begin|>"
_CALLS_END = "<|tool_calls_section_end|>"
_CALL = "<|tool_call_begin|>"
_CALL_END = "<|tool_call_end|>"
_EACH = re.compile(
    r"<\|tool_call_begin\|>\s*(?:functions\.)?(\S{1,256}?)(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>(.*?)(?:<\|tool_call_end\|>|\Z)",
    re.DOTALL,
)
_HEAD = (
    r"\s*<\|tool_call_begin\|>\s*(?:functions\.)?([^\s<:]{1,256})(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>\s*(?=\{)"
)
_HEADS = CallHeads.of(_HEAD, rf"\s*<\|tool_call_end\|>{_HEAD}")


def _decode(text: str) -> list[str | ToolCall] | None:
    return collect_calls(_EACH, text, lambda found: new_call(found[1], found[2].strip()))


_TOKENS = (_CALLS, _CALLS_END, _CALL, "<|tool_call_argument_begin|>", _CALL_END)

FAMILY = Family(
    thinking_names=("kimi",),
    markers=(_CALLS,),
    special_tokens=_TOKENS,
    tool_parser=lambda _tools: DelimitedParser.of_section(
        (_CALLS, _CALLS_END), (_CALL, _CALL_END), _decode, _HEADS
    ),
    call_grammar=CallGrammar(
        _TOKENS,
        lambda each, rule: (
            f"marker_2 {lark_text(f'functions.{each.name}:')} /[0-9]{{1,3}}/ marker_3 {rule}"
            " marker_4"
        ),
        as_json,
        between="",
        end="marker_1",
    ),
)
