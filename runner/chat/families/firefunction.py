"""Firefunction: functools and a JSON list of calls, to the end of the answer.

Source: the chat template of fireworks-ai/llama-3-firefunction-v2.
"""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json
from runner.chat.tools.call_grammar import NAMED_CALL, CallGrammar
from runner.chat.tools.call_stream import HEADS_OF_LIST
from runner.chat.tools.calls import calls_from_json
from runner.chat.tools.delimited import DelimitedParser, Delimiters

_BEGIN = "functools["

FAMILY = Family(
    markers=(_BEGIN,),
    rank=1,
    tool_parser=lambda _tools: DelimitedParser(
        Delimiters(_BEGIN, None, lambda text: calls_from_json(f"[{text}"), heads=HEADS_OF_LIST)
    ),
    call_grammar=CallGrammar((_BEGIN,), NAMED_CALL, as_json, between='"," blank', end='"]"'),
)
