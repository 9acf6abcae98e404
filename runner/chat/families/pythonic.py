"""Llama 3.2 and 4: an answer that is [NAME(KEY=VALUE, ...), ...], between <|python_start|> and
<|python_end|> or bare.

A bare answer counts when all its names are of tools that were offered.
"""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import keyword_values
from runner.chat.tools.call_grammar import CallGrammar, python_call
from runner.chat.tools.calls import Tools, calls_from_value, lenient_loads, only_offered
from runner.chat.tools.python_calls import CALLS_BEGIN, python_calls
from runner.chat.tools.whole_answer import WholeAnswerParser
from runner.types import ToolCall

_BEGIN, _END = "<|python_start|>", "<|python_end|>"


def _parser(tools: Tools) -> WholeAnswerParser:
    def decode(text: str) -> list[str | ToolCall] | None:
        body = text.strip().removesuffix(_END)
        found = only_offered(python_calls(body, tools), tools)
        return found or calls_from_value(lenient_loads(body), bare=True)

    return WholeAnswerParser(CALLS_BEGIN, decode, _BEGIN)


FAMILY = Family(
    names=("pythonic",),
    markers=("[func_name1(", _BEGIN),
    rank=4,
    special_tokens=(_BEGIN, _END),
    tool_parser=_parser,
    call_grammar=CallGrammar(
        (), python_call, keyword_values, begin='"["', between='", "', end='"]"', opens="["
    ),
)
