"""LFM2: <|tool_call_start|>[NAME(KEY="VALUE"), ...]<|tool_call_end|>."""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import keyword_values
from runner.chat.tools.call_grammar import CallGrammar, python_call
from runner.chat.tools.python_calls import python_parser

_AROUND = ("<|tool_call_start|>", "<|tool_call_end|>")

FAMILY = Family(
    names=("lfm2",),
    thinking_names=("lfm2-thinking",),
    markers=_AROUND[:1],
    special_tokens=_AROUND,
    tool_parser=python_parser(*_AROUND),
    call_grammar=CallGrammar(
        _AROUND, python_call, keyword_values, begin='"["', between='", "', end='"]" marker_1'
    ),
)
