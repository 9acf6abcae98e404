"""Qwen3-Coder, Qwen 3.5, Nemotron 3: <tool_call><function=NAME><parameter=KEY>VALUE</parameter>...

Values are bare texts; the tool's schema says what they are. Newlines beside a value belong to the
format. Seed-OSS writes the same in a marker of its own; Functionary and Llama 3.1 write
<function=NAME> and the arguments as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from runner.chat.family import Family
from runner.chat.tools.argument_grammar import bare_values, lark_text
from runner.chat.tools.call_grammar import CallGrammar
from runner.chat.tools.call_stream import HEADS_OF_OBJECT, CallStream, ToolCallDelta
from runner.chat.tools.calls import (
    Tools,
    broken_calls,
    calls_from_json,
    collect_calls,
    new_call,
    typed_call,
)
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_AROUND = ("<tool_call>", "</tool_call>")
_SEED = ("<seed:tool_call>", "</seed:tool_call>")
_FUNCTION = re.compile(r"<function=([^>\n]{1,256})>(.*?)(</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(
    r"<parameter=([^>\n]{1,256})>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL
)


def _parser(tools: Tools) -> DelimitedParser:
    def decode(text: str) -> list[str | ToolCall] | None:
        found = collect_calls(_FUNCTION, text, lambda match: _call(match[1], match[2], tools))
        return calls_from_json(text) if found is None else found

    def alone(text: str) -> list[str | ToolCall] | None:  # without the markers around it
        return decode(f"<function={text}")

    def decode_cut(text: str) -> Sequence[str | ToolCall | ToolCallDelta]:
        return broken_calls(
            *(_FUNCTION, "</parameter>", text), lambda match: _call(match[1], match[2], tools)
        ) or CallStream(HEADS_OF_OBJECT, None).feed(text)

    def alone_cut(text: str) -> Sequence[str | ToolCall | ToolCallDelta]:
        return decode_cut(f"<function={text}")

    return DelimitedParser(
        Delimiters(*_AROUND, decode, quoted=None, decode_cut=decode_cut),
        Delimiters(*_SEED, decode, quoted=None, decode_cut=decode_cut),
        Delimiters(*("<function=", "</function>", alone, _AROUND[1:], None), decode_cut=alone_cut),
    )


def _call(name: str, body: str, tools: Tools) -> ToolCall | None:
    texts = [
        (key, value.removeprefix("\n").removesuffix("\n"))
        for key, value in _PARAMETER.findall(body)
    ]
    if not texts and body.strip():
        return new_call(name.strip(), body.strip())
    return typed_call(name.strip().strip("\"'"), texts, tools)


FAMILY = Family(
    names=("qwen3-coder",),
    thinking_names=("qwen3.5", "qwen3.8", "ornith", "nemotron-3-nano", "nemotron-3.5-nano"),
    markers=("<function=",),
    rank=2,
    special_tokens=(*_AROUND, *_SEED),
    tool_parser=_parser,
    call_grammar=CallGrammar(
        _AROUND,
        lambda each, rule: (
            f'"\\n" {lark_text(f"<function={each.name}>")} "\\n" {rule} "</function>\\n" marker_1'
        ),
        bare_values("<parameter=", ">\n", "\n</parameter>\n"),
        repeated=True,
    ),
)
