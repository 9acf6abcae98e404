"""Calls without markers: an answer that is a JSON object with a name and arguments, or a list of
them, in a Markdown block or not. What templates ask for that name no tool format.

An answer counts when all its names are of tools that were offered.
"""

from __future__ import annotations

import re

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json
from runner.chat.tools.call_grammar import NAMED_CALL, CallGrammar
from runner.chat.tools.call_stream import JSON_HEAD, CallHeads
from runner.chat.tools.calls import Tools, calls_from_value, lenient_loads, only_offered
from runner.chat.tools.whole_answer import WholeAnswerParser
from runner.types import ToolCall

_BEGINS = re.compile(
    r"(\{)|\[\s*(?:(\{)|\Z)|`{1,2}\Z|```(?:j(?:s(?:o(?:n)?)?)?)?\s*(?:([{\[])|\Z)|\Z"
)
_BLOCK = re.compile(r"```(?:json)?\s*(.*?)\s*(?:```)?\Z", re.DOTALL)

_HEADS = CallHeads.of(
    rf"\s*(?:```(?:json)?\s*)?(?:\[\s*)?{JSON_HEAD}", rf"\s*\}}\s*,\s*{JSON_HEAD}"
)


def _parser(tools: Tools) -> WholeAnswerParser:
    def decode(text: str) -> list[str | ToolCall] | None:
        body = text.strip()
        block = _BLOCK.match(body)
        value = lenient_loads(body if block is None else block[1])
        if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
            value = value["tool_calls"]
        return only_offered(calls_from_value(value, bare=True), tools)

    return WholeAnswerParser(_BEGINS, decode, heads=_HEADS)


FAMILY = Family(
    names=("json",),
    markers=('{"name":', '{"name" :', '{\\"name\\":', '{"tool_name":', '"tool_calls":'),
    rank=7,
    tool_parser=_parser,
    call_grammar=CallGrammar((), NAMED_CALL, as_json, single=True),
)
