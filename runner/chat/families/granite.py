"""Granite 3 and Phi 4: <|tool_call|> and a JSON list of calls, to the end of the answer or to
<|/tool_call|>."""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json
from runner.chat.tools.call_grammar import NAMED_CALL, CallGrammar
from runner.chat.tools.call_stream import HEADS_OF_LIST
from runner.chat.tools.calls import calls_from_json
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_BEGIN, _END = "<|tool_call|>", "<|/tool_call|>"


def _decode(text: str) -> list[str | ToolCall] | None:
    body, _, after = text.partition(_END)
    calls = calls_from_json(body)
    return [*calls, after.lstrip()] if calls and after.strip() else calls


FAMILY = Family(
    names=("granite",),
    markers=(_BEGIN,),
    rank=1,
    special_tokens=(_BEGIN, _END),
    tool_parser=lambda _tools: DelimitedParser(
        Delimiters(_BEGIN, None, _decode, heads=HEADS_OF_LIST)
    ),
    call_grammar=CallGrammar(
        (_BEGIN,), NAMED_CALL, as_json, begin='blank "["', between='"," blank', end='"]"'
    ),
)
