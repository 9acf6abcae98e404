"""Calls as <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>, with or without
DeepSeek's marker before each word.

Values are bare texts; the tool's schema says what they are, or string="true" beside the name.
"""

from __future__ import annotations

import re

from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.calls import Tools, broken_calls, collect_calls, typed_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_WORD = r"(?:｜DSML｜)?"
_INVOKE = re.compile(
    rf'<{_WORD}invoke name="?([^">\n]{{1,256}})"?>(.*?)(</{_WORD}invoke>|\Z)', re.DOTALL
)
_PARAMETER = re.compile(
    rf'<{_WORD}parameter name="?([^">\n]{{1,256}})"?(?: string="(true|false)")?>'
    rf"(.*?)(?:</{_WORD}parameter>|\Z)",
    re.DOTALL,
)


def invoke_parser(tools: Tools, *around: tuple[str, str]) -> DelimitedParser:
    """A fresh parser. tools: those that were offered, for the types. around: what stands before
    and after all calls."""

    def decode(text: str) -> list[str | ToolCall] | None:
        return collect_calls(_INVOKE, text, lambda found: _call(found[1], found[2], tools))

    def decode_cut(text: str) -> list[ToolCall | ToolCallDelta]:
        return broken_calls(
            _INVOKE, "parameter>", text, lambda found: _call(found[1], found[2], tools)
        )

    return DelimitedParser(
        *(
            Delimiters(begin, end, decode, quoted=None, decode_cut=decode_cut)
            for begin, end in around
        )
    )


def _call(name: str, body: str, tools: Tools) -> ToolCall | None:
    found = _PARAMETER.findall(body)
    texts = [(key, value.removeprefix("\n").removesuffix("\n")) for key, _, value in found]
    return typed_call(
        name, texts, tools, {key for key, is_string, _ in found if is_string == "true"}
    )
