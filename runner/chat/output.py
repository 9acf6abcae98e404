"""From a model's text to content, reasoning and tool calls. Knows no wire format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from runner.chat.families import family_of, reasoning_tags_of
from runner.chat.family import (
    PASSTHROUGH,
    Family,
    OutputPart,
    ReasoningSplitter,
    ToolParser,
)
from runner.chat.reasoning import ReasoningParser, ReasoningText
from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.calls import Tools, name_of
from runner.chat.tools.unmarked_calls import UnmarkedCalls
from runner.types import Delta, Finish, ToolCall


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """What a piece of text completes. in_order: the parts one by one, where calls come as deltas;
    calls is empty then. cut_call: the last call where it was broken off. Its arguments are the
    beginning of a JSON object, which no reader can take for whole."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    in_order: tuple[str | ReasoningText | ToolCallDelta, ...] = ()
    cut_call: ToolCall | None = None

    @classmethod
    def of(cls, parts: Iterable[OutputPart]) -> OutputDelta:
        """Parts in the order written, put together by kind."""
        given = tuple(parts)
        whole = tuple(part for part in given if isinstance(part, ToolCall))
        calls, cut = join_calls(part for part in given if isinstance(part, ToolCallDelta))
        return cls(*_texts(given), (*whole, *calls), cut_call=cut)

    @classmethod
    def joined(cls, pieces: Iterable[OutputDelta]) -> OutputDelta:
        """What several pieces completed, one after the other, the calls whole."""
        given = tuple(pieces)
        calls, cut = join_calls(
            part for parts in given for part in parts.in_order if isinstance(part, ToolCallDelta)
        )
        return cls(
            "".join(parts.content for parts in given),
            "".join(parts.reasoning for parts in given),
            (*(call for parts in given for call in parts.calls), *calls),
            cut_call=cut or (given[-1].cut_call if given else None),
        )

    @classmethod
    def deltas_of(cls, parts: Iterable[OutputPart]) -> OutputDelta:
        """Parts in the order written, calls as deltas."""
        given = [_as_delta(part) if isinstance(part, ToolCall) else part for part in parts]
        return cls(*_texts(given), (), tuple(part for part in given if part))


def _texts(parts: Sequence[OutputPart]) -> tuple[str, str]:
    """Content and reasoning."""
    return (
        "".join(part for part in parts if isinstance(part, str)),
        "".join(part.text for part in parts if isinstance(part, ReasoningText)),
    )


def _as_delta(call: ToolCall) -> ToolCallDelta:
    return ToolCallDelta(call.id, call.name, call.arguments, last=True)


def join_calls(pieces: Iterable[ToolCallDelta]) -> tuple[tuple[ToolCall, ...], ToolCall | None]:
    """Calls of their pieces, and the one that was broken off."""
    names: dict[str, str] = {}
    arguments: dict[str, list[str]] = {}
    ended: set[str] = set()
    for piece in pieces:
        names.setdefault(piece.id, piece.name or "")
        arguments.setdefault(piece.id, []).append(piece.arguments)
        if piece.last:
            ended.add(piece.id)
    calls = [ToolCall(id_, name, "".join(arguments[id_])) for id_, name in names.items()]
    return (
        tuple(call for call in calls if call.id in ended),
        next((call for call in calls if call.id not in ended), None),
    )


class TaggedOutput:
    """Takes off the reasoning first, and tool calls from the rest. After a call reasoning between
    tags may begin again."""

    def __init__(
        self,
        reasoning: ReasoningSplitter | None,
        tools: ToolParser | None,
        tags: tuple[str, str] | None,
    ) -> None:
        """tags: around the reasoning after a call."""
        self._tags = tags
        self._reasoning = reasoning
        self._tools = tools
        self._again: ReasoningParser | None = None  # of the text after the last call

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside reasoning."""
        parser = self._again or self._reasoning
        return parser is not None and parser.in_reasoning

    def feed(self, text: str) -> list[OutputPart]:
        """What text completes."""
        return [*self._calls([text] if self._reasoning is None else self._reasoning.feed(text))]

    def finish(self, text: str = "", *, cut: bool = False) -> list[OutputPart]:
        """What the last text completes, with all that was held back. cut: see ToolParser."""
        parts = self.feed(text)
        if self._reasoning is not None:
            parts += self._calls(self._reasoning.finish(cut=cut))
        if self._tools is not None:
            parts += self._after(self._tools.finish(cut=cut))
        if self._again is not None:
            parts += self._again.finish(cut=cut)
        return parts

    def _calls(self, parts: Iterable[str | ReasoningText]) -> Iterator[OutputPart]:
        for part in parts:
            if self._tools is None or isinstance(part, ReasoningText):
                yield part
            elif part:
                yield from self._after(self._tools.feed(part))

    def _after(self, parts: Iterable[str | ToolCall | ToolCallDelta]) -> Iterator[OutputPart]:
        """parts, with the reasoning taken off the text after a call."""
        for part in parts:
            if isinstance(part, ToolCallDelta) and part.name is None:
                yield part
            elif not isinstance(part, str):
                if self._again is not None:
                    yield from self._again.finish()
                yield part
                self._again = None if self._tags is None else ReasoningParser(*self._tags)
            elif self._again is None:
                yield part
            else:
                yield from self._again.feed(part)


class OutputParser:
    """Takes an answer apart as it arrives, and counts the tokens of its reasoning, the tags
    around it included. turn_ends: stop strings with which the model ends an answer; any other
    breaks it off."""

    def __init__(
        self,
        splitter: TaggedOutput,
        *,
        single: bool = False,
        in_deltas: bool = False,
    ) -> None:
        """single: all calls but the first are left out, which is what parallel_tool_calls=false
        asks for. in_deltas: calls come as deltas, in OutputDelta.in_order."""
        self._splitter = splitter
        self.turn_ends: Collection[str] = ()
        self._single = single
        self._in_deltas = in_deltas
        self._first: str | None = None  # the id of the first call
        self.reasoning_tokens = 0

    def feed(self, text: str, token_count: int = 0) -> OutputDelta:
        """What text, which has so many tokens, completes."""
        return self._delta(self._splitter.feed, text, token_count)

    def finish(
        self, text: str = "", token_count: int = 0, finish: Finish | None = None
    ) -> OutputDelta:
        """What the last text completes, with all that was held back. finish: why it is the last; a
        limit or a stop string breaks off what is not whole."""
        stop = None if finish is None else finish.stop_string
        cut = (finish is not None and finish.reason == "length") or (
            stop is not None and stop not in self.turn_ends
        )
        split = partial(self._splitter.finish, cut=cut)
        return self._delta(split, text, token_count)

    def _delta(
        self, split: Callable[[str], list[OutputPart]], text: str, token_count: int
    ) -> OutputDelta:
        thought = self._splitter.in_reasoning
        given = split(text)
        if self._single:
            given = [part for part in given if self._counts(part)]
        parts = OutputDelta.deltas_of(given) if self._in_deltas else OutputDelta.of(given)
        if thought or self._splitter.in_reasoning or parts.reasoning:
            self.reasoning_tokens += token_count
        return parts

    def _counts(self, part: OutputPart) -> bool:
        if not isinstance(part, ToolCall | ToolCallDelta):
            return True
        self._first = self._first or part.id
        return part.id == self._first


def special_tokens_of(
    chat_template: str | None, *, tools: bool, name: str | None = None
) -> tuple[str, ...]:
    """Control tokens whose text the parser of this template needs. name: PARSER's."""
    family = family_of(chat_template, name)
    if family is None:
        return ()
    return (*family.message_tokens, *(family.special_tokens if tools else ()))


def output_parser(
    chat_template: str | None,
    *,
    tools: Tools,
    tags: tuple[str, str] | None = None,
    name: str | None = None,
    single: bool = False,
    in_deltas: bool = False,
) -> OutputParser | None:
    """A fresh parser for the answers of models with this chat template; None when there is
    nothing to look for. tools: those that were offered; none: calls are not looked for. tags:
    around the reasoning, where they are known better. name: PARSER's. single: only the first call
    counts. in_deltas: calls are shown as they are written."""
    if name == PASSTHROUGH:
        return None
    family = family_of(chat_template, name)
    tags = tags if tags is not None else reasoning_tags_of(chat_template, name)
    calls = tool_parser_of(family, tools, named=name is not None) if tools else None
    if calls is not None and in_deltas:
        calls.stream(filter(None, map(name_of, tools)))
    reasoning: ReasoningSplitter | None = None
    if family is not None and family.reasoning_splitter is not None:
        reasoning = family.reasoning_splitter(tools)
    elif tags is not None:
        reasoning = ReasoningParser(*tags)
    if reasoning is None and calls is None:
        return None
    splitter = TaggedOutput(reasoning, calls, tags)
    return OutputParser(splitter, single=single, in_deltas=in_deltas)


def tool_parser_of(
    family: Family | None, tools: Tools, *, named: bool = False
) -> ToolParser | None:
    """A fresh parser of a family's calls; None where there is none. tools: those that were offered;
    some tool formats leave the types of arguments to them. named: by PARSER, so that only its own
    tool format counts."""
    parser = family.tool_parser(tools) if family is not None and family.tool_parser else None
    return parser if named or isinstance(parser, UnmarkedCalls) else UnmarkedCalls(tools, parser)


def parse_delta(parser: OutputParser | None, delta: Delta) -> OutputDelta:
    """What a delta completes. parser None: its text is all content."""
    if parser is None:
        return OutputDelta(delta.text)
    if delta.finish is None:
        return parser.feed(delta.text, delta.token_count)
    return parser.finish(delta.text, delta.token_count, delta.finish)
