"""Gemma 4: <|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>,KEY:5}<tool_call|>.

Source: the chat template of google/gemma-4.
"""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.braced_calls import braced_grammar, braced_parser

_BEGIN, _END, _QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_RESPONSE = "<|tool_response>"

FAMILY = Family(
    thinking_names=("gemma4", "gemma4-no-thinking"),
    markers=(_BEGIN,),
    special_tokens=(_BEGIN, _END, _QUOTE, _RESPONSE),
    reasoning_tags=("<|channel>thought", "<channel|>"),
    # The model now and then repeats the end marker, or begins the result itself.
    tool_parser=braced_parser(_BEGIN, _END, _QUOTE, noise=(_END, _RESPONSE)),
    call_grammar=braced_grammar(_BEGIN, _END, _QUOTE),
)
