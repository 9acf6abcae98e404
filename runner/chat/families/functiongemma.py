"""FunctionGemma:
<start_function_call>call:NAME{KEY:<escape>TEXT<escape>,KEY:5}<end_function_call>.

Source: the chat template of google/functiongemma-270m-it.
"""

from __future__ import annotations

from runner.chat.family import Family
from runner.chat.tools.braced_calls import braced_grammar, braced_parser

_BEGIN, _END, _QUOTE = "<start_function_call>", "<end_function_call>", "<escape>"
_RESPONSE = "<start_function_response>"

FAMILY = Family(
    names=("functiongemma",),
    markers=(_BEGIN,),
    special_tokens=(_BEGIN, _END, _QUOTE, _RESPONSE),
    tool_parser=braced_parser(_BEGIN, _END, _QUOTE, noise=(_RESPONSE,)),
    call_grammar=braced_grammar(_BEGIN, _END, _QUOTE),
)
