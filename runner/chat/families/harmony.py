"""gpt-oss, OpenAI's harmony format: an answer is a row of messages, each with a channel.

<|channel|>analysis<|message|>...<|end|> is reasoning, the channels final and commentary are
content, and a message to functions.NAME is a call with JSON arguments. The prompt ends with
<|start|>assistant, so that an answer begins inside a header.
Source: https://cookbook.openai.com/articles/openai-harmony
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from runner.chat.family import Family, MessageHeaders, OutputPart
from runner.chat.reasoning import ReasoningText
from runner.chat.tools.argument_grammar import as_json, lark_text
from runner.chat.tools.call_grammar import CallGrammar
from runner.chat.tools.call_stream import CallHeads, CallStream
from runner.chat.tools.calls import new_call
from runner.chat.tools.delimited import MAX_CALL_CHARS, token_begun

_CHANNEL = "<|channel|>"
_MESSAGE = "<|message|>"
_TOKENS = (_CHANNEL, _MESSAGE, "<|start|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")
_ENDS = re.compile(r"<\|(?:end|call|return|start)\|>")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]{1,256})")
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")
_HEADER_BEGINS = (_CHANNEL, "<|start|>", "to=")
MAX_HEADER_CHARS = 1024

_HEADS = CallHeads.of(r"([^<{]{1,256})<\|message\|>\s*(?=\{)")


class HarmonySplitter:
    """Takes an answer apart as it arrives. Text that is not harmony is content."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        """names: of the tools whose calls are shown as they are written, None: calls come
        whole."""
        self._held = ""
        self._in_header = True
        self._searched = 0  # of _held inside a call: no end before here
        self._channel = "final"
        self._recipient: str | None = None
        self._names = None if names is None else frozenset(names)
        self._preview: CallStream | None = None  # of the call that has begun
        self._previewed = 0  # of _held

    @property
    def in_reasoning(self) -> bool:
        """Whether the message that has begun is reasoning."""
        return self._channel == "analysis" and not self._in_header

    def feed(self, text: str) -> list[OutputPart]:
        """What text completes; what may still become a marker, and calls, are held back."""
        self._held += text
        parts: list[OutputPart] = []
        while self._held and (found := self._take()) is not None:
            parts += found
        return parts

    def finish(self, text: str = "") -> list[OutputPart]:
        """What the last text completes, with all that was held back."""
        return [*self.feed(text), *self._finish()]

    def _finish(self) -> list[OutputPart]:
        held, self._held = self._held, ""
        if self._in_header:
            return [held] if held.strip() and not held.lstrip().startswith("<|") else []
        self._held = held
        shown, self._held = self._shown(len(held)), ""
        return shown + list(self._parts_of(held, whole=True))

    def _take(self) -> list[OutputPart] | None:
        return self._take_header() if self._in_header else self._take_body()

    def _take_header(self) -> list[OutputPart] | None:
        start = self._held.lstrip()
        begun = any(marker.startswith(start[: len(marker)]) for marker in _HEADER_BEGINS)
        end = self._held.find(_MESSAGE, 0, MAX_HEADER_CHARS)
        if begun and end < 0 and len(self._held) < MAX_HEADER_CHARS:
            return None
        if not begun or end < 0:
            self._in_header, self._channel, self._recipient = False, "final", None
            return []
        header, self._held = self._held[:end], self._held[end + len(_MESSAGE) :]
        channel, recipient = _CHANNEL_NAME.search(header), _RECIPIENT.search(header)
        self._channel = channel[1] if channel else "final"
        self._recipient = recipient[1] if recipient else None
        self._in_header = False
        self._preview, self._previewed = None, 0
        if self._recipient is not None and self._names is not None:
            self._preview = CallStream(_HEADS, self._names)
            self._preview.feed(self._recipient + _MESSAGE)
        return []

    def _take_body(self) -> list[OutputPart] | None:
        found = _ENDS.search(self._held, self._searched)
        self._searched = 0
        end = len(self._held) if found is None else found.start()
        if self._recipient is not None and end > MAX_CALL_CHARS:
            return self._cut_short()
        if found is not None:
            shown = self._shown(found.start())
            body, self._held = self._held[: found.start()], self._held[found.end() :]
            parts = [*shown, *self._parts_of(body, whole=True)]
            self._in_header, self._recipient, self._preview = True, None, None
            return parts
        if self._recipient is not None:
            self._searched = max(0, len(self._held) - len("<|return|>"))
            return self._shown(len(self._held) - token_begun(self._held, _TOKENS)) or None
        keep = token_begun(self._held, _TOKENS)
        body, self._held = self._held[: len(self._held) - keep], self._held[-keep:] * bool(keep)
        return list(self._parts_of(body, whole=False)) if body else None

    def _shown(self, end: int) -> list[OutputPart]:
        """What is certain of the call before that place of what is held."""
        start, end = self._previewed, min(end, MAX_CALL_CHARS)
        if self._preview is None or end <= start:
            return []
        self._previewed = end
        return [*self._preview.feed(self._held[start:end])]

    def _cut_short(self) -> list[OutputPart]:
        """The end of a call that is too long to be one; what was not shown of it is content."""
        shown = self._shown(MAX_CALL_CHARS)
        preview, self._preview, self._recipient = self._preview, None, None
        if preview is None or not preview.begun:
            return []
        ended, self._held = preview.abandon(""), self._held[self._unshown(preview) :]
        return [*shown, *ended]

    def _unshown(self, preview: CallStream) -> int:
        """Where in what is held the text begins that was not shown."""
        return self._previewed - (preview.fed - preview.shown)

    def _parts_of(self, body: str, *, whole: bool) -> Iterator[OutputPart]:
        preview = self._preview
        if self._recipient is not None and whole:
            call = new_call(self._recipient, body.strip() or "{}")
            if preview is not None and preview.begun:
                rest = body[self._unshown(preview) :]
                yield from preview.abandon(rest) if call is None else preview.settle([call])
                return
            if call is not None:
                yield call
                return
        if body:
            yield ReasoningText(body) if self._channel == "analysis" else body


FAMILY = Family(
    names=("harmony",),
    markers=((_CHANNEL, _MESSAGE, "<|start|>"),),
    message_tokens=_TOKENS,
    output_splitter=HarmonySplitter,
    headers=MessageHeaders(
        reasoning=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        text="<|channel|>final<|message|>",
    ),
    call_grammar=CallGrammar(
        (_CHANNEL, _MESSAGE, "<|constrain|>"),
        lambda each, rule: (
            f'"commentary to=functions." {lark_text(each.name)} " " marker_2 "json" marker_1 {rule}'
        ),
        as_json,
        single=True,
    ),
)
