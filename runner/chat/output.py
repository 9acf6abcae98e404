"""From a model's text to content, reasoning and tool calls. Knows no wire format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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

    @classmethod
    def joined(cls, pieces: Iterable[Parts]) -> Parts:
        """What several pieces completed, one after the other."""
        given = tuple(pieces)
        return cls(
            "".join(parts.content for parts in given),
            "".join(parts.reasoning for parts in given),
            tuple(call for parts in given for call in parts.calls),
        )


class Splitter(Protocol):
    """Takes an answer apart as it arrives."""

    @property
    def thinks(self) -> bool:
        """Whether the text so far ends inside reasoning."""

    def feed(self, text: str) -> Parts:
        """What text completes."""

    def finish(self, text: str = "") -> Parts:
        """What the last text completes, with all that was held back."""


class HarmonyOutput:
    """A Splitter for harmony, where one notation has all."""

    def __init__(self) -> None:
        self._parser = harmony.HarmonyParser()

    @property
    def thinks(self) -> bool:
        """See Splitter."""
        return self._parser.inside

    def feed(self, text: str) -> Parts:
        """See Splitter."""
        return Parts.of(self._parser.feed(text))

    def finish(self, text: str = "") -> Parts:
        """See Splitter."""
        return Parts.of([*self._parser.feed(text), *self._parser.finish()])


class MarkedOutput:
    """A Splitter that takes off the reasoning first, and tool calls from the rest. After a
    call reasoning may begin again."""

    def __init__(
        self,
        marks: tuple[str, str] | None,
        tools: ToolParser | None,
    ) -> None:
        """marks: around the reasoning."""
        self._marks = marks
        self._reasoning = None if marks is None else ReasoningParser(*marks)
        self._tools = tools
        self._again: ReasoningParser | None = None  # of the text after the last call

    @property
    def thinks(self) -> bool:
        """See Splitter."""
        parser = self._again or self._reasoning
        return parser is not None and parser.inside

    def feed(self, text: str) -> Parts:
        """See Splitter."""
        return Parts.of(self._calls(self._thought(text)))

    def finish(self, text: str = "") -> Parts:
        """See Splitter."""
        parts = list(self._calls(self._thought(text)))
        if self._reasoning is not None:
            parts += self._calls(self._reasoning.finish())
        if self._tools is not None:
            parts += self._after(self._tools.finish())
        if self._again is not None:
            parts += self._again.finish()
        return Parts.of(parts)

    def _thought(self, text: str) -> list[str | Reasoning]:
        return [text] if self._reasoning is None else self._reasoning.feed(text)

    def _calls(self, parts: Iterable[str | Reasoning]) -> Iterator[Part]:
        for part in parts:
            if self._tools is None or isinstance(part, Reasoning):
                yield part
            elif part:
                yield from self._after(self._tools.feed(part))

    def _after(self, parts: Iterable[str | ToolCall]) -> Iterator[Part]:
        """parts, with the reasoning taken off the text after a call."""
        for part in parts:
            if isinstance(part, ToolCall):
                if self._again is not None:
                    yield from self._again.finish()
                yield part
                self._again = None if self._marks is None else ReasoningParser(*self._marks)
            elif self._again is None:
                yield part
            else:
                yield from self._again.feed(part)


class OutputParser:
    """Takes an answer apart as it arrives, and counts the tokens of its reasoning, the marks
    around it included."""

    def __init__(self, splitter: Splitter, *, single: bool = False) -> None:
        """single: all calls but the first are left out, which is what parallel_tool_calls=false
        asks for."""
        self._splitter = splitter
        self._single = single
        self._called = False
        self.reasoning_tokens = 0

    def feed(self, text: str, token_count: int = 0) -> Parts:
        """What text, which has so many tokens, completes."""
        return self._taken(self._splitter.feed, text, token_count)

    def finish(self, text: str = "", token_count: int = 0) -> Parts:
        """What the last text completes, with all that was held back."""
        return self._taken(self._splitter.finish, text, token_count)

    def _taken(self, take: Callable[[str], Parts], text: str, token_count: int) -> Parts:
        thought = self._splitter.thinks
        parts = take(text)
        if thought or self._splitter.thinks or parts.reasoning:
            self.reasoning_tokens += token_count
        if not self._single or not parts.calls:
            return parts
        calls = () if self._called else parts.calls[:1]
        self._called = True
        return Parts(parts.content, parts.reasoning, calls)


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
    single: bool = False,
) -> OutputParser | None:
    """A fresh parser for the answers of models with this chat template; None when there is
    nothing to look for. tools: those that were offered; none: calls are not looked for. marks:
    around the reasoning, where they are known better. family: PARSER's name. single: only the
    first call counts."""
    if family == PASSTHROUGH:
        return None
    if speaks_harmony(chat_template, family):
        return OutputParser(HarmonyOutput(), single=single)
    found = marks if marks is not None else marks_of(chat_template, family)
    calls = parser_for(chat_template, tools, family) if tools else None
    if found is None and calls is None:
        return None
    return OutputParser(MarkedOutput(found, calls), single=single)
