"""From a model's text to content, reasoning and tool calls. Knows no wire format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from runner.chat import harmony
from runner.chat.reasoning import Reasoning, ReasoningParser, marks_of
from runner.chat.tools import PASSTHROUGH, ToolParser, kept_marks, parser_for
from runner.chat.tools.calls import Tools
from runner.types import ToolCall

Part = str | Reasoning | ToolCall


@dataclass(frozen=True, slots=True)
class Parts:
    """What a piece of text completes."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Parts:
        """Parts in the order written, put together by kind."""
        given = tuple(parts)
        return cls(
            "".join(part for part in given if isinstance(part, str)),
            "".join(part.text for part in given if isinstance(part, Reasoning)),
            tuple(part for part in given if isinstance(part, ToolCall)),
        )


class OutputParser(Protocol):
    """Takes an answer apart as it arrives."""

    def feed(self, text: str) -> Parts:
        """What text completes."""

    def finish(self, text: str = "") -> Parts:
        """What the last text completes, with all that was held back."""


class HarmonyOutput:
    """An OutputParser for harmony, where one notation has all."""

    def __init__(self) -> None:
        self._parser = harmony.HarmonyParser()

    def feed(self, text: str) -> Parts:
        """See OutputParser."""
        return Parts.of(self._parser.feed(text))

    def finish(self, text: str = "") -> Parts:
        """See OutputParser."""
        return Parts.of([*self._parser.feed(text), *self._parser.finish()])


class MarkedOutput:
    """An OutputParser that takes off the reasoning first, and tool calls from the rest."""

    def __init__(self, reasoning: ReasoningParser | None, tools: ToolParser | None) -> None:
        self._reasoning = reasoning
        self._tools = tools

    def feed(self, text: str) -> Parts:
        """See OutputParser."""
        if self._reasoning is None:
            return Parts.of(self._calls([text]))
        return Parts.of(self._calls(self._reasoning.feed(text)))

    def finish(self, text: str = "") -> Parts:
        """See OutputParser."""
        parts: list[Part] = []
        if self._reasoning is None:
            parts += self._calls([text])
        else:
            parts += self._calls([*self._reasoning.feed(text), *self._reasoning.finish()])
        if self._tools is not None:
            parts += self._tools.finish()
        return Parts.of(parts)

    def _calls(self, parts: Iterable[str | Reasoning]) -> Iterable[Part]:
        for part in parts:
            if self._tools is None or isinstance(part, Reasoning):
                yield part
            elif part:
                yield from self._tools.feed(part)


def speaks_harmony(chat_template: str | None, family: str | None = None) -> bool:
    """Whether the answers of a model with this template are messages with channels."""
    if family is not None:
        return family == "harmony"
    return chat_template is not None and all(
        mark in chat_template for mark in (harmony.MARKER, "<|message|>", "<|start|>")
    )


def marks_to_keep(
    chat_template: str | None, *, tools: bool, family: str | None = None
) -> tuple[str, ...]:
    """Control tokens whose text the parser of this template needs."""
    if speaks_harmony(chat_template, family):
        return harmony.KEPT
    return kept_marks(chat_template, family) if tools else ()


def output_parser(
    chat_template: str | None,
    *,
    tools: Tools,
    marks: tuple[str, str] | None = None,
    family: str | None = None,
) -> OutputParser | None:
    """A fresh parser for the answers of models with this chat template; None when there is
    nothing to look for. tools: those that were offered; none: calls are not looked for. marks:
    around the reasoning, where they are known better. family: PARSER's name."""
    if family == PASSTHROUGH:
        return None
    if speaks_harmony(chat_template, family):
        return HarmonyOutput()
    found = marks if marks is not None else marks_of(chat_template)
    reasoning = None if found is None else ReasoningParser(*found)
    calls = parser_for(chat_template, tools, family) if tools else None
    return None if reasoning is None and calls is None else MarkedOutput(reasoning, calls)
