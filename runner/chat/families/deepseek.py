"""DeepSeek V3, R1 and V3.1. The older ones write the arguments in a Markdown block after the word
function and the name, V3.1 the name and the arguments only. Cogito writes as V3 does."""

from __future__ import annotations

import re

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json, lark_text
from runner.chat.tools.call_grammar import CallGrammar
from runner.chat.tools.call_stream import CallHeads
from runner.chat.tools.calls import collect_calls, new_call
from runner.chat.tools.delimited import DelimitedParser
from runner.types import ToolCall

_CALLS = "<｜tool▁calls▁begin｜>"
_CALLS_END = "<｜tool▁calls▁end｜>"
_CALL = "<｜tool▁call▁begin｜>"
_CALL_END = "<｜tool▁call▁end｜>"
_EACH = re.compile(f"{_CALL}([^<]{{0,256}})<｜tool▁sep｜>(.*?)(?:{_CALL_END}|\\Z)", re.DOTALL)
_HEAD = (
    rf"\s*+{_CALL}\s*+(?:function\s*+<｜tool▁sep｜>\s*+(?=[^\s`]++\s*+```)|(?=[^<]*+<｜tool▁sep｜>\s*+\{{))"
    r"([^<`\s]{1,256}+)\s*+(?:<｜tool▁sep｜>|```(?:json)?+)\s*+(?=\{)"
)
_HEADS = CallHeads.of(_HEAD, rf"\s*+(?:```\s*+)?+(?:{_CALL_END})?+{_HEAD}")
_BLOCK = re.compile(r"\s*+([^\s`]{1,256}+)\s*+```(?:json)?+(.*+)", re.DOTALL)


def _decode(text: str) -> list[str | ToolCall] | None:
    return collect_calls(_EACH, text, _call)


def _call(found: re.Match[str]) -> ToolCall | None:
    first, second = found[1], found[2]
    block = _BLOCK.match(second) if first.strip() == "function" else None
    name, arguments = (block[1], block[2]) if block else (first, second)
    return new_call(name, arguments.strip().removesuffix("```" if block else "").strip())


_TOKENS = (_CALLS, _CALLS_END, _CALL, _CALL_END, "<｜tool▁sep｜>")
_IN_BLOCKS = CallGrammar(
    _TOKENS,
    lambda each, rule: (
        f'marker_2 "function" marker_4 {lark_text(each.name)} "\\n```json\\n" {rule} "\\n```"'
        " marker_3"
    ),
    as_json,
    end="marker_1",
)

FAMILY = Family(
    thinking_names=("cogito", "deepseek3", "deepseek3.1"),
    markers=(_CALLS,),
    special_tokens=_TOKENS,
    tool_parser=lambda _tools: DelimitedParser.of_section(
        (_CALLS, _CALLS_END), (_CALL, _CALL_END), _decode, _HEADS
    ),
    call_grammar=CallGrammar(
        _TOKENS,
        lambda each, rule: f"marker_2 {lark_text(each.name)} marker_4 {rule} marker_3",
        as_json,
        between="",
        end="marker_1",
    ),
    call_grammar_variants=(("```json", _IN_BLOCKS),),
)
