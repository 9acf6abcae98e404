"""gpt-oss, OpenAI's harmony format: an answer is a row of messages, each with a channel.

<|channel|>analysis<|message|>...<|end|> is reasoning, the channels final and commentary are
content, and a message to functions.NAME is a call with JSON arguments.
Source: https://cookbook.openai.com/articles/openai-harmony
"""

from __future__ import annotations

import re

from runner.chat.family import Family, MessageHeaders
from runner.chat.messages import MESSAGE, MessageForm, MessageSplitter
from runner.chat.tools.argument_grammar import as_json, lark_text
from runner.chat.tools.call_grammar import CallGrammar
from runner.chat.tools.call_stream import CallHeads
from runner.chat.tools.calls import Tools, new_call
from runner.chat.tools.delimited import DelimitedParser, Delimiters
from runner.types import ToolCall

_CHANNEL = "<|channel|>"
_TOKENS = (_CHANNEL, MESSAGE, "<|start|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]{1,256})")
_REASONING = re.compile(r"<\|channel\|>\s*analysis\b")
_BEGIN, _END = "<|call|>", "<|end|>"
"""Around a call as the parser of calls sees it: they end messages, and stand in none."""
_CALL = re.compile(r"([^<]{1,256})<\|message\|>(.*)\Z", re.DOTALL)
_HEADS = CallHeads.of(r"([^<{]{1,256})<\|message\|>\s*(?=\{)")


def _splitter(tools: Tools) -> MessageSplitter:
    def marks(header: str) -> tuple[str, str] | None:
        recipient = _RECIPIENT.search(header)
        if recipient is not None and tools:
            return f"{_BEGIN}{recipient[1]}{MESSAGE}", _END
        return None if _REASONING.search(header) else ("", "")

    ends = re.compile(r"<\|(?:end|call|return|start)\|>")
    return MessageSplitter(MessageForm(_TOKENS, ends, (_CHANNEL, "<|start|>", "to="), marks))


def _decode(text: str) -> list[str | ToolCall] | None:
    found = _CALL.match(text)
    call = None if found is None else new_call(found[1], found[2].strip())
    return None if call is None else [call]


FAMILY = Family(
    names=("harmony",),
    markers=((_CHANNEL, MESSAGE, "<|start|>"),),
    message_tokens=_TOKENS,
    tool_parser=lambda _tools: DelimitedParser(
        Delimiters(_BEGIN, _END, _decode, quoted=None, heads=_HEADS)
    ),
    reasoning_splitter=_splitter,
    headers=MessageHeaders(
        reasoning=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        text="<|channel|>final<|message|>",
    ),
    call_grammar=CallGrammar(
        (_CHANNEL, MESSAGE, "<|constrain|>"),
        lambda each, rule: (
            f'"commentary to=functions." {lark_text(each.name)} " " marker_2 "json" marker_1 {rule}'
        ),
        as_json,
        single=True,
    ),
)
