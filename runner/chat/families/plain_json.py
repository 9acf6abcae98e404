"""Calls without markers, see runner.chat.tools.unmarked_calls: what templates ask for that name no
tool format."""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import as_json
from runner.chat.tools.call_grammar import NAMED_CALL, CallGrammar
from runner.chat.tools.unmarked_calls import UnmarkedCalls

FAMILY = Family(
    names=("json",),
    markers=('{"name":', '{"name" :', '{\\"name\\":', '{"tool_name":', '"tool_calls":'),
    rank=7,
    tool_parser=UnmarkedCalls,
    call_grammar=CallGrammar((), NAMED_CALL, as_json, single=True),
)
