"""Calls as they are written, before their ends: for streams of their arguments.

A call is shown from when its name is whole, a tool of this name was offered, and its arguments
have begun as a JSON object. From there on it stays a call. Its arguments, put together, are those
of the whole call: that is what the parser reads when the call has ended, and the rest of it is
shown then. Where the parser can make no call of it, its arguments are what the model wrote, which
no reader can take for whole. What is not shown early comes whole, as calls do whose arguments are
not JSON in the text.

A call that is broken off has no last delta. Its arguments are a beginning of a JSON object, up to
the last text, number or bracket that is certain: of 12345 the number 1 would be left.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runner.chat.tools.json_normalizer import JsonNormalizer
from runner.types import ToolCall

MAX_HEAD_CHARS = 1024
_CLOSING = re.compile(r"[\s\]};,`]*\Z")

_NAMED = r'"(?:name|tool_name)"\s*:\s*"([^"\\\x00-\x1f]{1,256})"'
_GIVEN = r'"(?:arguments|parameters)"\s*:\s*(?=\{)'
JSON_HEAD = (
    r'\{\s*(?:"(?:id|tool_call_id|type)"\s*:\s*"[^"\\]{0,64}"\s*,\s*){0,3}'
    rf'(?:"function"\s*:\s*\{{\s*)?{_NAMED}\s*,\s*{_GIVEN}'
)
"""A call as a JSON object, up to its arguments."""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a call's arguments. name: with the first piece only. last: nothing more follows; a
    call without such a piece was broken off."""

    id: str
    name: str | None
    arguments: str
    last: bool = False


@dataclass(frozen=True, slots=True)
class CallHeads:
    """What stands before the arguments of the first call and of later ones; the one group
    that is found is the name. later None: there is one call."""

    first: re.Pattern[str]
    later: re.Pattern[str] | None = None

    @classmethod
    def of(cls, first: str, later: str | None = None) -> CallHeads:
        """Heads by their expressions."""
        return cls(re.compile(first), None if later is None else re.compile(later))


HEADS_OF_OBJECT = CallHeads.of(rf"\s*+{JSON_HEAD}")
HEADS_OF_LIST = CallHeads.of(rf"\s*+(?:\[\s*+)?+{JSON_HEAD}", rf"\s*+\}}\s*+,\s*+{JSON_HEAD}")
"""What is between the markers is an object, or a list of them."""


class CallStream:
    """The calls between two markers. Text is fed up to where the calls may end."""

    def __init__(self, heads: CallHeads | None, names: Collection[str] | None) -> None:
        """names: of the tools whose calls are shown, None: of any name; without any, or without
        heads, none is."""
        self._head = heads.first if heads is not None and (names is None or names) else None
        self._later = None if heads is None else heads.later
        self._names = names
        self._shown: list[tuple[str, list[str]]] = []  # id and what was sent of each call
        self._arguments: JsonNormalizer | None = None  # of the last call, until its end was shown
        self._rest = ""
        self._fed = 0

    @property
    def begun(self) -> bool:
        """Whether a call was shown."""
        return bool(self._shown)

    @property
    def in_call(self) -> bool:
        """Whether a call was shown that has not ended."""
        return self._arguments is not None

    @property
    def count(self) -> int:
        """How many calls were shown."""
        return len(self._shown)

    @property
    def fed(self) -> int:
        """How many characters came."""
        return self._fed

    @property
    def shown(self) -> int:
        """How many of them are in what was shown, or were no part of it."""
        rest = self._rest if self._arguments is None else self._arguments.rest
        return self._fed - len(rest)

    def feed(self, text: str) -> list[str | ToolCall | ToolCallDelta]:
        """The pieces that text completes."""
        self._fed += len(text)
        if self._head is None and not self._shown:
            return []
        self._rest += text
        parts: list[str | ToolCall | ToolCallDelta] = []
        while (piece := self._take()) is not None:
            parts.append(piece)
        return parts

    def settle(self, parts: Iterable[str | ToolCall]) -> Iterator[str | ToolCall | ToolCallDelta]:
        """The end of what was read as parts: what was not shown of it."""
        waiting = iter(self._shown)
        for part in parts:
            shown = next(waiting, None) if isinstance(part, ToolCall) else None
            if shown is None or isinstance(part, str):
                yield part
            elif shown == self._shown[-1] and self._arguments is not None:
                yield self._last(part.arguments)
        if self._arguments is not None:
            yield self._last(None)

    def abandon(self, rest: str) -> Iterator[str | ToolCall | ToolCallDelta]:
        """The end of what could not be read; rest: what came after what was shown."""
        if self._arguments is not None:
            arguments, self._arguments = self._arguments, None
            arguments.rest = rest
            yield ToolCallDelta(self._shown[-1][0], None, arguments.unwritten, last=True)
        elif not _CLOSING.match(rest):
            yield rest

    def _last(self, whole: str | None) -> ToolCallDelta:
        """The end of the last call's arguments."""
        assert self._arguments is not None
        ident, sent = self._shown[-1]
        written, unwritten = "".join(sent), self._arguments.unwritten
        self._arguments = None
        if whole is not None and whole.startswith(written):
            unwritten = whole[len(written) :]
        return ToolCallDelta(ident, None, unwritten, last=True)

    def _take(self) -> ToolCallDelta | None:
        return self._take_head() if self._arguments is None else self._take_arguments()

    def _take_head(self) -> ToolCallDelta | None:
        if self._head is None:
            return None
        found = self._head.match(self._rest)
        name = "" if found is None else str(found[found.lastindex or 0]).strip()
        if found is None or (self._names is not None and name not in self._names):
            if found is not None or len(self._rest) > MAX_HEAD_CHARS:
                self._head = None
            return None
        self._rest, self._head = self._rest[found.end() :], self._later
        self._shown.append((f"call_{secrets.token_hex(8)}", []))
        self._arguments = JsonNormalizer()
        return ToolCallDelta(self._shown[-1][0], name, "")

    def _take_arguments(self) -> ToolCallDelta | None:
        arguments = self._arguments
        if arguments is None or not self._rest:
            return None
        text, self._rest = self._rest, ""
        written, done = arguments.feed(text), arguments.done
        if done:
            self._rest, self._arguments = arguments.rest, None
        if not written and not done:
            return None
        ident, sent = self._shown[-1]
        sent.append(written)
        return ToolCallDelta(ident, None, written, last=done)


def broken_off(name: str, arguments: Mapping[str, Any]) -> ToolCallDelta:
    """A call that has no end. arguments: those that are whole."""
    written = json.dumps(arguments, ensure_ascii=False)[:-1]
    return ToolCallDelta(f"call_{secrets.token_hex(8)}", name, written)
