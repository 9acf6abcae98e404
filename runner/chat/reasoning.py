"""Reasoning in the text of a model: what stands between two marks before the answer.

The marks are those that the model's chat template writes. Text that only looks like a mark is
text: nothing a model wrote is lost, except blanks beside the marks. Every character is looked at
a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

REASONING_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel>thought", "<channel|>"),
)
"""Of the families DeepSeek R1 and Qwen 3, Granite, Gemini-like, Seed, Cohere, OpenThinker,
Magistral and Gemma 4."""

_THINK = REASONING_TAGS[0]
_BY_NAME = {
    **dict.fromkeys(
        ("qwen3-thinking", "qwen3-vl-thinking", "qwen3.5", "qwen3.8", "ornith"), _THINK
    ),
    **dict.fromkeys(("deepseek3", "deepseek3.1", "deepseek3.2", "cogito", "olmo3-think"), _THINK),
    **dict.fromkeys(("nemotron-3-nano", "nemotron-3.5-nano", "lfm2-thinking"), _THINK),
    **dict.fromkeys(("glm-4.6", "glm-4.7", "glm-ocr", "laguna", "poolside-v1"), _THINK),
    **dict.fromkeys(("minimax-m2", "kimi"), _THINK),
    "cohere": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "gemma4": ("<|channel>thought", "<channel|>"),
    "gemma4-no-thinking": ("<|channel>thought", "<channel|>"),
}
"""Of parsers by the names that PARSER takes, for models whose template shows no marks."""


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """A piece of what the model thinks."""

    text: str


def reasoning_tags_of(
    chat_template: str | None, family: str | None = None
) -> tuple[str, str] | None:
    """The marks that a chat template knows, or the parser that PARSER names; None when neither
    knows any. The end mark counts: many templates only write that, to cut old reasoning off."""
    found = (pair for pair in REASONING_TAGS if pair[1] in (chat_template or ""))
    return next(found, None) or _BY_NAME.get(family or "")


def special_tokens_of_reasoning(marks: tuple[str, str] | None) -> tuple[str, ...]:
    """Control tokens whose text must reach a ReasoningParser with these marks."""
    if marks is None:
        return ()
    return (*marks, "<|channel>") if marks[1] == "<channel|>" else marks


class ReasoningParser:
    """Takes reasoning off the beginning of an answer, as it arrives."""

    def __init__(self, opening: str, closing: str) -> None:
        self._opening = opening
        self._closing = closing
        self._held = ""
        self._state: Callable[[], list[str | ReasoningText] | None] = self._before

    @property
    def inside(self) -> bool:
        """Whether the reasoning has begun and not ended."""
        return self._state in (self._blanks_inside, self._inside)

    def feed(self, text: str) -> list[str | ReasoningText]:
        """Reasoning and content that text completes; what may still become a mark is held."""
        self._held += text
        parts: list[str | ReasoningText] = []
        while self._held:
            found = self._state()
            if found is None:
                break
            parts += found
        return parts

    def finish(self) -> list[str | ReasoningText]:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        if not held or self._state in (self._blanks_inside, self._blanks_after):
            return []
        return [ReasoningText(held) if self._state == self._inside else held]

    def _before(self) -> list[str | ReasoningText] | None:
        text = self._held.lstrip()
        if text.startswith(self._opening):
            self._held = text[len(self._opening) :]
            self._state = self._blanks_inside
            return []
        if self._opening.startswith(text):
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
            keep = _overlap(self._held, self._closing)
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


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of text may be the beginning of mark."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
