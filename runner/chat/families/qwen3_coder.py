"""The notation of Qwen3-Coder: <tool_call><function=NAME><parameter=KEY>VALUE</parameter>...

Values are bare texts; the tool's schema says what they are. Newlines beside a value belong to the
notation. Qwen 3.5 and Nemotron 3 write the same, Seed-OSS with a mark of its own; Functionary and
Llama 3.1 write <function=NAME> and the arguments as JSON.
"""

from __future__ import annotations

import re

from runner.chat.tools.calls import Tools, calls_from_json, collect_calls, new_call, typed_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

MARKERS = ("<function=",)
KEPT = ("<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>")
_FUNCTION = re.compile(r"<function=([^>\n]{1,256})>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(
    r"<parameter=([^>\n]{1,256})>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL
)


def parser(tools: Tools) -> DelimitedParser:
    """A fresh parser. tools: those that were offered, for the types. A function may stand alone,
    without the marks around it."""

    def decode(text: str) -> list[str | ToolCall] | None:
        found = collect_calls(_FUNCTION, text, lambda match: _call(match[1], match[2], tools))
        return calls_from_json(text) if found is None else found

    def alone(text: str) -> list[str | ToolCall] | None:
        return collect_calls(
            _FUNCTION, f"<function={text}", lambda match: _call(match[1], match[2], tools)
        )

    return DelimitedParser(
        Delimiters("<tool_call>", "</tool_call>", decode, quoted=_never),
        Delimiters("<seed:tool_call>", "</seed:tool_call>", decode, quoted=_never),
        Delimiters("<function=", "</function>", alone, noise=("</tool_call>",), quoted=_never),
    )


def _never(text: str) -> bool:
    return False


def _call(name: str, body: str, tools: Tools) -> ToolCall | None:
    texts = [
        (key, value.removeprefix("\n").removesuffix("\n"))
        for key, value in _PARAMETER.findall(body)
    ]
    if not texts and body.strip():
        return new_call(name.strip(), body.strip())
    return typed_call(name.strip().strip("\"'"), texts, tools)
