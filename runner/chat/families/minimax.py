"""MiniMax M2: <minimax:tool_call> around <invoke name="NAME"> and <parameter name="KEY">."""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import bare_values, lark_text
from runner.chat.tools.call_grammar import CallGrammar
from runner.chat.tools.invoke_calls import invoke_parser

_AROUND = ("<minimax:tool_call>", "</minimax:tool_call>")

FAMILY = Family(
    thinking_names=("minimax-m2",),
    markers=_AROUND[:1],
    special_tokens=_AROUND,
    tool_parser=lambda tools: invoke_parser(tools, _AROUND),
    call_grammar=CallGrammar(
        _AROUND,
        lambda each, rule: (
            f'"\\n" {lark_text(f"""<invoke name="{each.name}">""")} "\\n" {rule} "</invoke>"'
        ),
        bare_values('<parameter name="', '">', "</parameter>\n"),
        between="",
        end='"\\n" marker_1',
    ),
)
