"""Muse Glimmer: an answer is a row of messages, each to somebody.

 to=self<|message|>...<|eom|> is reasoning; what goes to the user or to a tool is text, calls in it
<atem:function_calls> around <atem:invoke name="NAME">, and in it <atem:parameter name="KEY">. The
prompt ends with <|start|>assistant, so that an answer begins inside a header. Source: the chat
template of the model.
"""

from __future__ import annotations

import re

from runner.chat.family import Family
from runner.chat.messages import MESSAGE, MessageForm, MessageSplitter
from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.calls import Tools, broken_calls, collect_calls, name_of, typed_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_TOKENS = ("<|start|>", MESSAGE, "<|eom|>", "<|eot|>")
_RECIPIENT = re.compile(r"\bto=([^\s<]{1,256})")
_CALLS = "<atem:function_calls>"
_INVOKE = re.compile(r'<atem:invoke name="([^">\n]{1,256})">(.*?)(</atem:invoke>|\Z)', re.DOTALL)
_PARAMETER = re.compile(
    r'<atem:parameter name="([^">\n]{1,256})">(.*?)(?:</atem:parameter>|\Z)', re.DOTALL
)


def _marks(header: str) -> tuple[str, str] | None:
    found = _RECIPIENT.search(header)
    return None if found is not None and found[1] == "self" else ("", "")


_ENDS = re.compile(r"<\|(?:eom|eot|start)\|>")
_FORM = MessageForm(_TOKENS, _ENDS, ("to=", "<|start|>", MESSAGE), _marks)


def _parser(tools: Tools) -> DelimitedParser:
    names = {name_of(tool) for tool in tools}

    def call(found: re.Match[str]) -> ToolCall | None:
        name = _short(found[1].replace(MESSAGE, ""), names)
        return typed_call(name, _PARAMETER.findall(found[2]), tools)

    def decode(text: str) -> list[str | ToolCall] | None:
        return collect_calls(_INVOKE, text, call)

    def decode_cut(text: str) -> list[ToolCall | ToolCallDelta]:
        return broken_calls(_INVOKE, "</atem:parameter>", text, call)

    return DelimitedParser(
        Delimiters(_CALLS, "</atem:function_calls>", decode, quoted=None, decode_cut=decode_cut)
    )


def _short(name: str, names: set[str | None]) -> str:
    """The name of the tool that is meant. The list of tools names each with a space before it, so
    that the model may write read.read for read."""
    space, _, rest = name.partition(".")
    meant = rest in names and rest.partition(".")[0] == space
    return rest if meant and name not in names else name


FAMILY = Family(
    names=("glimmer",),
    markers=(_CALLS, ("<|eom|>", "to=self<|message|>")),
    message_tokens=_TOKENS,
    tool_parser=_parser,
    reasoning_splitter=lambda _tools: MessageSplitter(_FORM),
)
