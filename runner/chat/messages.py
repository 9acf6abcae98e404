"""Answers that are a row of messages, each with a header that says whom it is to or what it is.

The prompt ends inside a header, and so the answer begins in one. Knows no family.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from runner.chat.reasoning import ReasoningText
from runner.chat.tools.delimited import begun

MESSAGE = "<|message|>"  # after a header
MAX_HEADER_CHARS = 1024


@dataclass(frozen=True, slots=True)
class MessageForm:
    """How a family writes them. tokens: all around messages; ends: those that end one. begins: what
    a header may begin with. marks: what is put before and after a message's text, by its header;
    None: the text is reasoning."""

    tokens: tuple[str, ...]
    ends: re.Pattern[str]
    begins: tuple[str, ...]
    marks: Callable[[str], tuple[str, str] | None]


class MessageSplitter:
    """See runner.chat.family.ReasoningSplitter: takes off the headers too. Text that is no header
    is text."""

    def __init__(self, form: MessageForm) -> None:
        self._form = form
        self._held = ""
        self._in_header = True
        self._marks: tuple[str, str] | None = ("", "")

    @property
    def in_reasoning(self) -> bool:
        """Whether the message that has begun is reasoning."""
        return self._marks is None and not self._in_header

    def feed(self, text: str) -> list[str | ReasoningText]:
        """What text completes; what may still become a marker is held back."""
        self._held += text
        parts: list[str | ReasoningText] = []
        while self._held and (found := self._take()) is not None:
            parts += found
        return parts

    def finish(self, *, cut: bool = False) -> list[str | ReasoningText]:
        """See runner.chat.family.ReasoningSplitter."""
        held, self._held = self._held, ""
        if cut:
            return []
        if self._in_header:
            return [held] if held.strip() and not held.lstrip().startswith("<|") else []
        return self._parts_of(held)

    def _take(self) -> list[str | ReasoningText] | None:
        return self._take_header() if self._in_header else self._take_body()

    def _take_header(self) -> list[str | ReasoningText] | None:
        start = self._held.lstrip()
        is_header = any(begin.startswith(start[: len(begin)]) for begin in self._form.begins)
        end = self._held.find(MESSAGE, 0, MAX_HEADER_CHARS)
        if is_header and end < 0 and len(self._held) < MAX_HEADER_CHARS:
            return None
        self._in_header, self._marks = False, ("", "")
        if is_header and end >= 0:
            self._marks = self._form.marks(self._held[:end])
            self._held = self._held[end + len(MESSAGE) :]
        return [] if self._marks is None else [self._marks[0]]

    def _take_body(self) -> list[str | ReasoningText] | None:
        found = self._form.ends.search(self._held)
        if found is not None:
            body, self._held = self._held[: found.start()], self._held[found.end() :]
            after = "" if self._marks is None else self._marks[1]
            parts = self._parts_of(body)
            self._in_header, self._marks = True, ("", "")
            return [*parts, after]
        cut = len(self._held) - max(begun(self._held, token) for token in self._form.tokens)
        body, self._held = self._held[:cut], self._held[cut:]
        return self._parts_of(body) or None

    def _parts_of(self, body: str) -> list[str | ReasoningText]:
        if not body:
            return []
        return [ReasoningText(body) if self._marks is None else body]
