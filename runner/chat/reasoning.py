"""Reasoning in the text of a model: what stands between two tags before the answer.

The tags are those that the model's chat template writes. Text that only looks like a tag is
text: nothing a model wrote is lost, except blanks beside the tags. Every character is looked at
a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runner.chat.tools.delimited import begun

THINK: Final = ("<think>", "</think>")
REASONING_TAGS: Final = (
    THINK,
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
"""Of no one family: DeepSeek R1, Qwen 3 and many others, Granite, Gemini, Seed, OpenThinker."""
_TOKEN = re.compile(r"<[^<>]+>")
_MAX_HELD = 512  # characters, blanks above all, before what may be an opening tag


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """A piece of what the model thinks."""

    text: str


def special_tokens_of_reasoning(tags: tuple[str, str] | None) -> tuple[str, ...]:
    """Control tokens whose text must reach a ReasoningParser with these tags: the tags, and what
    stands in angle brackets in them."""
    if tags is None:
        return ()
    return tuple(dict.fromkeys((*tags, *_TOKEN.findall(" ".join(tags)))))


class ReasoningParser:
    """Takes reasoning off the beginning of an answer, as it arrives."""

    def __init__(self, opening: str, closing: str) -> None:
        self._opening = opening
        self._closing = closing
        self._held = ""
        self._state: Callable[[], list[str | ReasoningText] | None] = self._before

    @property
    def in_reasoning(self) -> bool:
        """Whether the reasoning has begun and not ended."""
        return self._state in (self._blanks_inside, self._inside)

    def feed(self, text: str) -> list[str | ReasoningText]:
        """Reasoning and content that text completes; what may still become a tag is held."""
        self._held += text
        parts: list[str | ReasoningText] = []
        while self._held:
            found = self._state()
            if found is None:
                break
            parts += found
        return parts

    def finish(self, *, cut: bool = False) -> list[str | ReasoningText]:
        """See runner.chat.family.ReasoningSplitter."""
        held, self._held = self._held, ""
        if not held or cut or self._state in (self._blanks_inside, self._blanks_after):
            return []
        return [ReasoningText(held) if self._state == self._inside else held]

    def _before(self) -> list[str | ReasoningText] | None:
        text = self._held.lstrip()
        if text.startswith(self._opening):
            self._held = text[len(self._opening) :]
            self._state = self._blanks_inside
            return []
        if self._opening.startswith(text) and len(self._held) <= _MAX_HELD:
            return None
        self._state = self._after
        return []

    def _blanks_inside(self) -> list[str | ReasoningText] | None:
        return self._skip_blanks(self._inside)

    def _inside(self) -> list[str | ReasoningText] | None:
        end = self._held.find(self._closing)
        if end >= 0:
            thought, self._held = self._held[:end], self._held[end + len(self._closing) :]
            self._state = self._blanks_after
        else:
            keep = begun(self._held, self._closing)
            cut = len(self._held) - keep
            thought, self._held = self._held[:cut], self._held[cut:]
            if not thought:
                return None
        return [ReasoningText(thought)] if thought else []

    def _blanks_after(self) -> list[str | ReasoningText] | None:
        return self._skip_blanks(self._after)

    def _after(self) -> list[str | ReasoningText] | None:
        content, self._held = self._held, ""
        return [content]

    def _skip_blanks(
        self, then: Callable[[], list[str | ReasoningText] | None]
    ) -> list[str | ReasoningText] | None:
        self._held = self._held.lstrip()
        if not self._held:
            return None
        self._state = then
        return []
