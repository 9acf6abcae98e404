"""What is known of a model family: its names, tool format, reasoning format, special tokens.

Knows no family; each is a module of runner.chat.families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from runner.chat.reasoning import THINK, ReasoningText
from runner.chat.tools.call_grammar import CallGrammar
from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.calls import Tools
from runner.types import Grammar, ToolCall

OutputPart = str | ReasoningText | ToolCall | ToolCallDelta


class ToolParser(Protocol):
    """Takes a model's text apart, as it arrives."""

    def stream(self, names: Iterable[str]) -> None:
        """Show calls of the tools with these names as they are written, where the tool format
        allows it: as deltas. Others come whole."""

    def feed(self, text: str) -> Sequence[str | ToolCall | ToolCallDelta]:
        """Content and calls that text completes; what may still become a call is held back."""

    def finish(self, *, cut: bool = False) -> Sequence[str | ToolCall | ToolCallDelta]:
        """What was held back, at the end of the text. cut: the text was broken off. What may have
        become a marker is no content then, and a call that was not whole comes as deltas without
        a last one, if at all."""


class ReasoningSplitter(Protocol):
    """Takes the reasoning off an answer, as it arrives."""

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside reasoning."""

    def feed(self, text: str) -> list[str | ReasoningText]:
        """What text completes."""

    def finish(self, *, cut: bool = False) -> list[str | ReasoningText]:
        """What was held back, at the end of the text. cut: it was broken off, so that what may have
        become a marker is neither."""


@dataclass(frozen=True, slots=True)
class MessageHeaders:
    """Of a family whose answers are messages with headers: what a grammar must allow before what
    it constrains. reasoning: what a message of reasoning begins with, and what stands between its
    text and the next header. text: the header of the answer's own text."""

    reasoning: tuple[str, str]
    text: str

    def before_text(self, grammar: Grammar) -> Grammar:
        """grammar for the text of an answer, whose header the model has no choice but to write."""
        begin, end = self.reasoning
        return replace(grammar, reasoning=(begin, end + self.text), head=self.text)

    def before_calls(self, grammar: Grammar) -> Grammar:
        """grammar for calls, which have headers of their own."""
        return replace(grammar, reasoning=self.reasoning)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A model family. It is named by PARSER, or known by what its chat templates write."""

    names: tuple[str, ...] = ()
    """That PARSER takes."""
    thinking_names: tuple[str, ...] = ()
    """The same, for models that reason though their template may not show it."""
    markers: tuple[str | tuple[str, ...], ...] = ()
    """A chat template that holds one of these texts, or all of a group, is of this family."""
    rank: int = 0
    """Of families whose markers stand in one template, that with the lowest counts."""
    special_tokens: tuple[str, ...] = ()
    """Of the tool format: their text must reach the parser where they are control tokens."""
    message_tokens: tuple[str, ...] = ()
    """The same of every message, with tools or without."""
    reasoning_tags: tuple[str, str] = THINK
    tool_parser: Callable[[Tools], ToolParser] | None = None
    """Makes a fresh parser. tools: those that were offered."""
    reasoning_splitter: Callable[[Tools], ReasoningSplitter] | None = None
    """Where reasoning stands in messages of its own and not between tags."""
    headers: MessageHeaders | None = None
    call_grammar: CallGrammar | None = None
    """How calls are written; None: not known well enough to enforce them."""
    call_grammar_variants: tuple[tuple[str, CallGrammar], ...] = ()
    """Those that count in its place where the chat template holds a text."""

    def speaks(self, chat_template: str) -> bool:
        """Whether a chat template is of this family."""
        return any(
            marker in chat_template
            if isinstance(marker, str)
            else all(each in chat_template for each in marker)
            for marker in self.markers
        )

    def call_grammar_for(self, chat_template: str | None) -> CallGrammar | None:
        """How a model of this family with this template writes calls."""
        for text, grammar in self.call_grammar_variants:
            if text in (chat_template or ""):
                return grammar
        return self.call_grammar


PASSTHROUGH: Final = "passthrough"
"""What PARSER says of a model whose answers are left as they are."""
