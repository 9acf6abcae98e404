"""From a model's text to content, reasoning and tool calls. Knows no wire format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from runner.chat.families import glimmer, harmony
from runner.chat.reasoning import ReasoningParser, ReasoningText, reasoning_tags_of
from runner.chat.tools import PASSTHROUGH, ToolParser, kept_marks, tool_parser_for
from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.calls import Tools, name_of
from runner.types import ToolCall

Part = str | ReasoningText | ToolCall | ToolCallDelta


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """What a piece of text completes. in_order: the parts one by one, where calls come in pieces;
    calls is empty then."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    in_order: tuple[str | ReasoningText | ToolCallDelta, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Part]) -> OutputDelta:
        """Parts in the order written, put together by kind."""
        given = tuple(parts)
        return cls(
            "".join(part for part in given if isinstance(part, str)),
            "".join(part.text for part in given if isinstance(part, ReasoningText)),
            tuple(part for part in given if isinstance(part, ToolCall)),
        )

    @classmethod
    def joined(cls, pieces: Iterable[OutputDelta]) -> OutputDelta:
        """What several pieces completed, one after the other, the calls whole."""
        given = tuple(pieces)
        calls = join_calls(
            part for parts in given for part in parts.in_order if isinstance(part, ToolCallDelta)
        )
        return cls(
            "".join(parts.content for parts in given),
            "".join(parts.reasoning for parts in given),
            (*(call for parts in given for call in parts.calls), *calls),
        )

    @classmethod
    def pieces_of(cls, parts: Iterable[Part]) -> OutputDelta:
        """Parts in the order written, calls as pieces."""
        given = [_as_piece(part) if isinstance(part, ToolCall) else part for part in parts]
        whole = cls.of(given)
        return cls(whole.content, whole.reasoning, (), tuple(part for part in given if part))


def _as_piece(call: ToolCall) -> ToolCallDelta:
    return ToolCallDelta(call.id, call.name, call.arguments, last=True)


def join_calls(pieces: Iterable[ToolCallDelta]) -> tuple[ToolCall, ...]:
    """Calls of their pieces."""
    names: dict[str, str] = {}
    arguments: dict[str, list[str]] = {}
    for piece in pieces:
        names.setdefault(piece.id, piece.name or "")
        arguments.setdefault(piece.id, []).append(piece.arguments)
    return tuple(ToolCall(id_, name, "".join(arguments[id_])) for id_, name in names.items())


class OutputSplitter(Protocol):
    """Takes an answer apart as it arrives."""

    @property
    def thinks(self) -> bool:
        """Whether the text so far ends inside reasoning."""

    def feed(self, text: str) -> list[Part]:
        """What text completes."""

    def finish(self, text: str = "") -> list[Part]:
        """What the last text completes, with all that was held back."""


class HarmonyOutput:
    """A Splitter for harmony, where one notation has all."""

    def __init__(self, streamed: Iterable[str] | None = None) -> None:
        """streamed: names of tools whose calls are shown as they are written."""
        self._parser = harmony.HarmonyParser()
        if streamed is not None:
            self._parser.stream(streamed)

    @property
    def thinks(self) -> bool:
        """See Splitter."""
        return self._parser.inside

    def feed(self, text: str) -> list[Part]:
        """See Splitter."""
        return self._parser.feed(text)

    def finish(self, text: str = "") -> list[Part]:
        """See Splitter."""
        return [*self._parser.feed(text), *self._parser.finish()]


class TaggedOutput:
    """A Splitter that takes off the reasoning first, and tool calls from the rest. After a
    call reasoning may begin again."""

    def __init__(
        self,
        marks: tuple[str, str] | None,
        tools: ToolParser | None,
        channels: glimmer.GlimmerParser | None = None,
    ) -> None:
        """marks: around the reasoning. channels: what takes the reasoning off in place of them."""
        self._marks = marks
        self._reasoning: ReasoningParser | glimmer.GlimmerParser | None = channels
        if channels is None and marks is not None:
            self._reasoning = ReasoningParser(*marks)
        self._tools = tools
        self._again: ReasoningParser | None = None  # of the text after the last call

    @property
    def thinks(self) -> bool:
        """See Splitter."""
        parser = self._again or self._reasoning
        return parser is not None and parser.inside

    def feed(self, text: str) -> list[Part]:
        """See Splitter."""
        return list(self._calls(self._thought(text)))

    def finish(self, text: str = "") -> list[Part]:
        """See Splitter."""
        parts = list(self._calls(self._thought(text)))
        if self._reasoning is not None:
            parts += self._calls(self._reasoning.finish())
        if self._tools is not None:
            parts += self._after(self._tools.finish())
        if self._again is not None:
            parts += self._again.finish()
        return parts

    def _thought(self, text: str) -> list[str | ReasoningText]:
        return [text] if self._reasoning is None else self._reasoning.feed(text)

    def _calls(self, parts: Iterable[str | ReasoningText]) -> Iterator[Part]:
        for part in parts:
            if self._tools is None or isinstance(part, ReasoningText):
                yield part
            elif part:
                yield from self._after(self._tools.feed(part))

    def _after(self, parts: Iterable[str | ToolCall | ToolCallDelta]) -> Iterator[Part]:
        """parts, with the reasoning taken off the text after a call."""
        for part in parts:
            if isinstance(part, ToolCallDelta) and part.name is None:
                yield part
            elif not isinstance(part, str):
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

    def __init__(
        self, splitter: OutputSplitter, *, single: bool = False, in_pieces: bool = False
    ) -> None:
        """single: all calls but the first are left out, which is what parallel_tool_calls=false
        asks for. in_pieces: calls come as pieces, in Parts.in_order."""
        self._splitter = splitter
        self._single = single
        self._in_pieces = in_pieces
        self._first: str | None = None  # the id of the first call
        self.reasoning_tokens = 0

    def feed(self, text: str, token_count: int = 0) -> OutputDelta:
        """What text, which has so many tokens, completes."""
        return self._taken(self._splitter.feed, text, token_count)

    def finish(self, text: str = "", token_count: int = 0) -> OutputDelta:
        """What the last text completes, with all that was held back."""
        return self._taken(self._splitter.finish, text, token_count)

    def _taken(self, take: Callable[[str], list[Part]], text: str, token_count: int) -> OutputDelta:
        thought = self._splitter.thinks
        given = take(text)
        if self._single:
            given = [part for part in given if self._wanted(part)]
        parts = OutputDelta.pieces_of(given) if self._in_pieces else OutputDelta.of(given)
        if thought or self._splitter.thinks or parts.reasoning:
            self.reasoning_tokens += token_count
        return parts

    def _wanted(self, part: Part) -> bool:
        if not isinstance(part, ToolCall | ToolCallDelta):
            return True
        self._first = self._first or part.id
        return part.id == self._first


def is_harmony(chat_template: str | None, family: str | None = None) -> bool:
    """Whether the answers of a model with this template are messages with channels."""
    if family is not None:
        return family == "harmony"
    return chat_template is not None and all(
        mark in chat_template for mark in (harmony.MARKER, "<|message|>", "<|start|>")
    )


def is_glimmer(chat_template: str | None, family: str | None = None) -> bool:
    """Whether the answers of a model with this template are messages to the user and to itself."""
    if family is not None:
        return family == glimmer.FAMILY
    return chat_template is not None and all(mark in chat_template for mark in glimmer.MARKERS)


def special_tokens_of(
    chat_template: str | None, *, tools: bool, family: str | None = None
) -> tuple[str, ...]:
    """Control tokens whose text the parser of this template needs."""
    if is_harmony(chat_template, family):
        return harmony.KEPT
    if is_glimmer(chat_template, family):
        return glimmer.KEPT
    return kept_marks(chat_template, family) if tools else ()


def output_parser(
    chat_template: str | None,
    *,
    tools: Tools,
    marks: tuple[str, str] | None = None,
    family: str | None = None,
    single: bool = False,
    in_pieces: bool = False,
) -> OutputParser | None:
    """A fresh parser for the answers of models with this chat template; None when there is
    nothing to look for. tools: those that were offered; none: calls are not looked for. marks:
    around the reasoning, where they are known better. family: PARSER's name. single: only the
    first call counts. in_pieces: calls are shown as they are written."""
    if family == PASSTHROUGH:
        return None
    if is_harmony(chat_template, family):
        names = [name for name in map(name_of, tools) if name is not None] if in_pieces else None
        return OutputParser(HarmonyOutput(names), single=single, in_pieces=in_pieces)
    found = marks if marks is not None else reasoning_tags_of(chat_template, family)
    calls = tool_parser_for(chat_template, tools, family, streams=in_pieces) if tools else None
    channels = glimmer.GlimmerParser() if is_glimmer(chat_template, family) else None
    if found is None and calls is None and channels is None:
        return None
    splitter = TaggedOutput(found, calls, channels)
    return OutputParser(splitter, single=single, in_pieces=in_pieces)
