"""Llama 3.2 and 4: an answer that is [NAME(KEY=VALUE, ...), ...], between <|python_start|> and
<|python_end|> or bare."""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import keyword_values
from runner.chat.tools.call_grammar import CallGrammar, python_call
from runner.chat.tools.python_calls import python_parser
from runner.chat.tools.unmarked_calls import UnmarkedCalls

_AROUND = ("<|python_start|>", "<|python_end|>")

FAMILY = Family(
    names=("pythonic",),
    markers=("[func_name1(", _AROUND[0]),
    rank=4,
    special_tokens=_AROUND,
    tool_parser=lambda tools: UnmarkedCalls(tools, python_parser(*_AROUND)(tools), python=True),
    call_grammar=CallGrammar(
        (), python_call, keyword_values, begin='"["', between='", "', end='"]"', opens="["
    ),
)
