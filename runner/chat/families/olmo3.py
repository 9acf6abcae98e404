"""OLMo 3: <function_calls>, one call as Python on each line, </function_calls>."""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import keyword_values
from runner.chat.tools.call_grammar import CallGrammar, python_call
from runner.chat.tools.python_calls import python_parser

_AROUND = ("<function_calls>", "</function_calls>")

FAMILY = Family(
    names=("olmo3",),
    thinking_names=("olmo3-think",),
    markers=_AROUND[:1],
    special_tokens=_AROUND,
    tool_parser=python_parser(*_AROUND),
    call_grammar=CallGrammar(_AROUND, python_call, keyword_values, between='"\\n"', end="marker_1"),
)
