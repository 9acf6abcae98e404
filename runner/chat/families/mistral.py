"""Mistral: [TOOL_CALLS][{"name": ..., "arguments": ...}], and since 2025
[TOOL_CALLS]NAME[ARGS]{...}, once for each call. Text after the calls is content."""

from __future__ import annotations

import json
import re

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json, lark_text
from runner.chat.tools.call_grammar import NAMED_CALL, CallGrammar
from runner.chat.tools.call_stream import JSON_HEAD, CallHeads
from runner.chat.tools.calls import Tools, calls_from_json, calls_from_value, new_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_CALLS = "[TOOL_CALLS]"
_NAME = re.compile(
    r"\s*+([^\[\s{]{1,256}+)\s*+(?:\[CALL_ID\][^\[{]{0,256}+)?+(?:\[ARGS\])?+\s*+(?=\{)"
)
_HEADS = CallHeads.of(
    rf"(?:\s*+(?:\[\s*+)?+{JSON_HEAD}|{_NAME.pattern})",
    rf"\s*+(?:\}}\s*+,\s*+{JSON_HEAD}|\[TOOL_CALLS\]{_NAME.pattern})",
)
_NEXT = re.compile(r"\s*\[TOOL_CALLS\]")
_CLOSERS = re.compile(r"\A(?:\s*[\]}])+")  # too many of them
_DECODER = json.JSONDecoder()


def _parser(_tools: Tools) -> DelimitedParser:
    return DelimitedParser(Delimiters(_CALLS, None, _decode, heads=_HEADS))


def _decode(text: str) -> list[str | ToolCall] | None:
    parts: list[str | ToolCall] = []
    while True:
        calls, text = _from_array(text) if text.lstrip().startswith(("[", "{")) else _named(text)
        if not calls:
            return None
        parts += calls
        text = _CLOSERS.sub("", text)
        found = _NEXT.match(text)
        if found is None:
            return [*parts, text.lstrip()] if text.strip() else parts
        text = text[found.end() :]


def _from_array(text: str) -> tuple[list[str | ToolCall] | None, str]:
    """Calls of a list or an object at the beginning, and the text after it."""
    body = text.lstrip()
    try:
        value, end = _DECODER.raw_decode(body)
    except (ValueError, RecursionError):
        return calls_from_json(body), ""
    return calls_from_value(value), body[end:]


def _named(text: str) -> tuple[list[str | ToolCall] | None, str]:
    """A name with its arguments at the beginning, and the text after them."""
    found = _NAME.match(text)
    if found is None:
        return None, text
    body = text[found.end() :]
    try:
        value, end = _DECODER.raw_decode(body)
    except (ValueError, RecursionError):
        value, end = body.strip(), len(body)
    call = new_call(found[1], value)
    return (None if call is None else [call]), body[end:]


_BY_NAME = CallGrammar(
    (_CALLS, "[ARGS]"),
    lambda each, rule: f"{lark_text(each.name)} marker_1 {rule}",
    as_json,
    between="",
    repeated=True,
)

FAMILY = Family(
    names=("ministral", "mistral"),
    markers=(_CALLS,),
    special_tokens=(_CALLS, "[ARGS]", "[CALL_ID]"),
    reasoning_tags=("[THINK]", "[/THINK]"),
    tool_parser=_parser,
    call_grammar=CallGrammar(
        (_CALLS,), NAMED_CALL, as_json, begin='"["', between='"," blank', end='"]"'
    ),
    call_grammar_variants=(("[ARGS]", _BY_NAME),),
)
