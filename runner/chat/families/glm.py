"""GLM 4.5 and later, Laguna: <tool_call>NAME, then <arg_key> and <arg_value> in turn."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import bare_values, lark_text
from runner.chat.tools.call_grammar import CallGrammar
from runner.chat.tools.call_stream import (
    HEADS_OF_OBJECT,
    CallStream,
    ToolCallDelta,
    broken_off,
)
from runner.chat.tools.calls import Tools, calls_from_json, typed_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_AROUND = ("<tool_call>", "</tool_call>")
_CALL = re.compile(r"\s*([^<\s{]{1,256})\s*((?:<arg_key>.*|\{.*)?)\Z", re.DOTALL)
_ARGUMENT = re.compile(
    r"<arg_key>([^<]*+)</arg_key>\s*+<arg_value>(.*?)(?:</arg_value>|\Z)", re.DOTALL
)

_NAME = re.compile(r"\s*([^<\s{]{1,256})(?=\s*[<{]|\s)")
_WHOLE_ARGUMENT = re.compile(
    r"<arg_key>([^<]*+)</arg_key>\s*+<arg_value>(.*?)</arg_value>", re.DOTALL
)


def _parser(tools: Tools) -> DelimitedParser:
    def decode(text: str) -> list[str | ToolCall] | None:
        found = _CALL.match(text)
        if found is None or found[2].startswith("{"):
            return calls_from_json(text if found is None else _as_json(found[1], found[2]))
        call = typed_call(found[1], _ARGUMENT.findall(found[2]), tools)
        return None if call is None else [call]

    def decode_cut(text: str) -> Sequence[str | ToolCall | ToolCallDelta]:
        found = _NAME.match(text)
        if found is None:
            return CallStream(HEADS_OF_OBJECT, None).feed(text)
        call = typed_call(found[1], _WHOLE_ARGUMENT.findall(text), tools)
        return [] if call is None else [broken_off(call.name, json.loads(call.arguments))]

    return DelimitedParser(Delimiters(*_AROUND, decode, decode_cut=decode_cut))


def _as_json(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "arguments": {arguments}'


FAMILY = Family(
    thinking_names=("glm-4.6", "glm-4.7", "glm-ocr", "laguna", "poolside-v1"),
    markers=("<arg_key>",),
    rank=2,
    special_tokens=(*_AROUND, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    tool_parser=_parser,
    call_grammar=CallGrammar(
        _AROUND,
        lambda each, rule: f'{lark_text(each.name)} "\\n" {rule} marker_1',
        bare_values("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
        repeated=True,
    ),
)
