"""Muse Glimmer: an answer is a row of messages, each to somebody.

 to=self<|message|>...<|eom|> is reasoning; what goes to the user or to a tool is text, calls in it
<atem:function_calls> around <atem:invoke name="NAME">, and in it <atem:parameter name="KEY">. The
prompt ends with <|start|>assistant, so that an answer begins inside a header. Source: the chat
template of the model.
"""

from __future__ import annotations

import re

from runner.chat.family import Family
from runner.chat.reasoning import ReasoningText
from runner.chat.tools.calls import Tools, collect_calls, name_of, typed_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters, token_begun
from runner.types import ToolCall

_TOKENS = ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>")
_MESSAGE = "<|message|>"
_ENDS = re.compile(r"<\|(?:eom|eot|start)\|>")
_BEGINNINGS = ("to=", "<|start|>", _MESSAGE)
_RECIPIENT = re.compile(r"\bto=([^\s<]{1,256})")
MAX_HEADER_CHARS = 1024
_CALLS = "<atem:function_calls>"
_INVOKE = re.compile(r'<atem:invoke name="([^">\n]{1,256})">(.*?)(?:</atem:invoke>|\Z)', re.DOTALL)
_PARAMETER = re.compile(
    r'<atem:parameter name="([^">\n]{1,256})">(.*?)(?:</atem:parameter>|\Z)', re.DOTALL
)


class GlimmerSplitter:
    """Takes the headers and the reasoning off an answer as it arrives. Text that is no header is
    text."""

    def __init__(self) -> None:
        self._held = ""
        self._in_header = True
        self._to_self = False

    @property
    def in_reasoning(self) -> bool:
        """Whether the message that has begun is reasoning."""
        return self._to_self and not self._in_header

    def feed(self, text: str) -> list[str | ReasoningText]:
        """What text completes; what may still become a marker is held back."""
        self._held += text
        parts: list[str | ReasoningText] = []
        while self._held:
            found = self._take_header() if self._in_header else self._take_body()
            if found is None:
                break
            parts += found
        return parts

    def finish(self) -> list[str | ReasoningText]:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        if self._in_header and (not held.strip() or held.lstrip().startswith("<|")):
            return []
        return self._parts_of(held)

    def _take_header(self) -> list[str | ReasoningText] | None:
        start = self._held.lstrip()
        begun = any(marker.startswith(start[: len(marker)]) for marker in _BEGINNINGS)
        end = self._held.find(_MESSAGE, 0, MAX_HEADER_CHARS)
        if begun and end < 0 and len(self._held) < MAX_HEADER_CHARS:
            return None
        self._in_header = self._to_self = False
        if begun and end >= 0:
            found = _RECIPIENT.search(self._held, 0, end)
            self._to_self = found is not None and found[1] == "self"
            self._held = self._held[end + len(_MESSAGE) :]
        return []

    def _take_body(self) -> list[str | ReasoningText] | None:
        found = _ENDS.search(self._held)
        if found is not None:
            body, self._held = self._held[: found.start()], self._held[found.end() :]
            parts = self._parts_of(body)
            self._in_header, self._to_self = True, False
            return parts
        cut = len(self._held) - token_begun(self._held, _TOKENS)
        body, self._held = self._held[:cut], self._held[cut:]
        return self._parts_of(body) if body else None

    def _parts_of(self, body: str) -> list[str | ReasoningText]:
        if not body:
            return []
        return [ReasoningText(body) if self._to_self else body]


def _parser(tools: Tools) -> DelimitedParser:
    names = {name_of(tool) for tool in tools}

    def call(found: re.Match[str]) -> ToolCall | None:
        name = _short(found[1].replace(_MESSAGE, ""), names)
        return typed_call(name, _PARAMETER.findall(found[2]), tools)

    def decode(text: str) -> list[str | ToolCall] | None:
        return collect_calls(_INVOKE, text, call)

    return DelimitedParser(Delimiters(_CALLS, "</atem:function_calls>", decode, quoted=None))


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
    reasoning_splitter=GlimmerSplitter,
)
