"""Calls without markers: JSON that names an offered tool, in a Markdown block or bare, anywhere in
the answer. Models for code write them in place of their template's.

An object counts when it has a tool's name and arguments; objects may stand in a list, under
"tool_calls", or one after the other. Where a family writes Python, a list of calls of offered tools
counts too. All else is content, and held back for as long as it may
still become a call. What is inside other JSON, other blocks of code or backticks is content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator

from runner.chat.family import ToolParser
from runner.chat.tools.call_stream import HEADS_OF_OBJECT, MAX_HEAD_CHARS, CallStream, ToolCallDelta
from runner.chat.tools.calls import (
    ARGUMENT_KEYS,
    NAME_KEYS,
    Tools,
    calls_from_value,
    lenient_loads,
    name_of,
    only_offered,
)
from runner.chat.tools.delimited import MAX_CALL_CHARS, Part, without_blanks
from runner.chat.tools.json_end import JsonEnd
from runner.chat.tools.python_calls import broken_python_calls, python_calls
from runner.types import ToolCall

_MARK = re.compile(r"(`+)([{\[]?)|[{\[]")
_FENCED = ("json", "tool_calls", "tool_call", "tools", "tool", "function_calls", "function_call")
_FENCE = rf"```[ \t]*+(?:{'|'.join(_FENCED)})?+\s*+"
_OPENING = re.compile(rf'(?:{_FENCE})?(?:\[\s*+|\{{\s*+"tool_calls"\s*+:\s*+\[\s*+)?(?=\{{)')
_OPENING_BEGUN = re.compile(rf"```[ \t]*+[a-z_]{{0,14}}\Z|(?:{_FENCE})?(?:\[\s*+)?\Z")
_PYTHON = re.compile(r"\[\s*([^\W\d][\w.-]*)\s*(\()?")
_JSON = re.compile(r'(?:\[\s*)?\{\s*"')
_HEAD_BEGUN = re.compile(
    rf'(?:{_FENCE})?(?:\[\s*+|\{{\s*+"tool_calls"\s*+:\s*+\[\s*+)?\{{?\s*+'
    r'(?:"(?:id|tool_call_id|type)"\s*:\s*"[^"\\]{0,64}"\s*,\s*){0,3}'
    r'(?:"(?:[a-z_]{0,12}(?:"\s*(?::\s*(?:\{\s*)?(?:"[^"]{0,256})?)?)?)?)?'
)
_TAGS = (
    "</tool_call>",
    "</tool_calls>",
    "</function>",
)  # that models write without their beginning
_AROUND = re.compile(
    rf"(?:[\s,;}}\]]|{'|'.join(_TAGS)})*+"
)  # what stands between calls, and closes what they stand in
_CLOSING = "```"
_MAX_BACKTICKS = 64  # of one run, which may go on
_WINDOW_CHARS = 2048  # read at once: what is held is copied for each bracket
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)
_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, "id", "type", "index", "tool_call_id", "tool_calls")


class UnmarkedCalls:
    """See runner.chat.family.ToolParser. It reads what the family's own parser leaves as text."""

    def __init__(
        self, tools: Tools, marked: ToolParser | None = None, *, python: bool = False
    ) -> None:
        """marked: the family's own parser; None: it has none. python: calls may be written so."""
        self._tools = tools
        self._python = python
        self._marked = marked
        self._names = {name for name in map(name_of, tools) if name is not None}
        self._streamed: frozenset[str] = frozenset()
        self._take: Callable[[], list[Part] | None] = self._content
        self._held = ""
        self._before = ""  # what was read before a call, and is content if it turns out to be none
        self._fenced = False  # inside a block whose beginning was no content
        self._end = JsonEnd()
        self._scanned = 0  # of what is held, by _end
        self._preview = CallStream(None, ())  # of the call that has begun

    def stream(self, names: Iterable[str]) -> None:
        """See ToolParser."""
        self._streamed = frozenset(names)
        if self._marked is not None:
            self._marked.stream(self._streamed)

    def feed(self, text: str) -> list[Part]:
        """See ToolParser."""
        return self._read(text) if self._marked is None else [*self._left(self._marked.feed(text))]

    def finish(self, *, cut: bool = False) -> list[Part]:
        """See ToolParser."""
        left = [] if self._marked is None else [*self._left(self._marked.finish(cut=cut))]
        return [*left, *(self._broken_off() if cut else self._flush())]

    def _broken_off(self) -> list[Part]:
        """What is certain of the text that is held, which has no end."""
        held = self._held
        if self._take == self._opening:
            parts: list[Part] = [] if self._begins_call(held) else [self._before + held]
        elif self._take == self._object:
            parts = self._broken_object(held)
        elif self._take == self._content:
            parts = [without_fence] if (without_fence := held.rstrip("`")) else []
        else:
            parts = [held] if held and self._take != self._after else []
        self._held, self._before, self._fenced, self._take = "", "", False, self._content
        return parts

    def _begins_call(self, held: str) -> bool:
        """Whether held looks like the first words of a call, and says nothing else."""
        fence = held.removeprefix(_CLOSING).lstrip(" \t") if held.startswith(_CLOSING) else None
        if fence is not None and any(word.startswith(fence) for word in _FENCED):
            return True
        if _HEAD_BEGUN.fullmatch(held) or _PYTHON.fullmatch(held):
            return True
        named = re.search(r'"(?:name|tool_name|function)"\s*:\s*"([^"]*)', held)
        return named is not None and any(name.startswith(named[1]) for name in self._names)

    def _broken_object(self, held: str) -> list[Part]:
        """The whole calls of what begins with one, and what is certain of the last one."""
        if self._preview.begun:
            return self._shown(len(held))
        shown = CallStream(HEADS_OF_OBJECT, self._names).feed(held)
        if shown or not self._python:
            return shown
        calls = broken_python_calls(held, self._tools)
        return [call for call in calls if call.name in self._names]

    def _left(self, parts: Iterable[Part]) -> Iterator[Part]:
        for part in parts:
            yield from self._read(part) if isinstance(part, str) else [*self._flush(), part]

    def _read(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for start in range(0, len(text), _WINDOW_CHARS):
            self._held += text[start : start + _WINDOW_CHARS]
            while self._held and (found := self._take()) is not None:
                parts += [part for part in found if part != ""]
        return parts

    def _flush(self) -> list[Part]:
        """What is held, when no more text follows it."""
        parts: list[Part] = []
        if self._take == self._opening and (opening := _OPENING.match(self._held)):
            self._begin(opening.end())
        if self._take == self._object:
            parts = self._ended(len(self._held))
        if self._take != self._after:
            parts.append(self._before + self._held)
        self._held, self._before, self._fenced, self._take = "", "", False, self._content
        return [part for part in parts if part != ""]

    def _content(self) -> list[Part] | None:
        found = _MARK.search(self._held)
        undecided = (
            found is not None
            and found[0].endswith("`")
            and found.end() == len(self._held)
            and len(found[0]) <= _MAX_BACKTICKS
        )
        if found is None or undecided:
            end = len(self._held) if found is None else found.start()
            content = without_blanks(self._held[:end])
            self._held = self._held[len(content) :]
            return [content] if content else None
        if found[1] and found[1] != _CLOSING:  # code in a line of text
            if found[2]:
                self._take, self._end = self._skipped, JsonEnd()
            return [self._cut(found.end() - len(found[2]))]
        content = self._held[: found.start()].rstrip()
        self._before = self._held[len(content) : found.start()]
        self._held, self._take = self._held[found.start() :], self._opening
        return [content]

    def _opening(self) -> list[Part] | None:
        """What may be the beginning of a call, until it is or is not."""
        found = _OPENING.match(self._held)
        if found is None:
            named = self._calls_python()
            if named:
                return self._begin(0)
            undecided = named is None or _OPENING_BEGUN.match(self._held)
            too_long = len(self._held) > MAX_HEAD_CHARS
            return None if undecided and not too_long else self._no_call()
        head = self._held[found.end() : found.end() + MAX_HEAD_CHARS + 1]
        named = _may_call(head[:MAX_HEAD_CHARS], self._names)
        if named is None:
            end = JsonEnd().feed(head)
            if end is None and len(head) <= MAX_HEAD_CHARS:
                return None
            named = end is not None and end <= MAX_HEAD_CHARS
        return self._begin(found.end()) if named else self._no_call()

    def _calls_python(self) -> bool | None:
        """Whether a list of calls in Python begins; None: what is held does not say."""
        found = _PYTHON.match(self._held) if self._python else None
        if found is None:
            return False
        if found[2] or found.end() < len(self._held):
            return bool(found[2]) and found[1] in self._names
        return None if any(name.startswith(found[1]) for name in self._names) else False

    def _begin(self, opening: int) -> list[Part]:
        """Take the first characters off what may be a call."""
        self._before += self._cut(opening)
        self._end, self._scanned = JsonEnd(), 0
        self._preview = CallStream(HEADS_OF_OBJECT, self._streamed)
        self._take = self._object
        return []

    def _no_call(self) -> list[Part]:
        before, self._before = self._before, ""
        if self._fenced or self._held.startswith(_CLOSING):
            self._take = self._code
            return [before, self._cut(0 if self._fenced else len(_CLOSING))]
        if _JSON.match(self._held):
            self._take, self._end = self._skipped, JsonEnd()
            return [before]
        self._take = self._content
        return [before, self._cut(1)]

    def _object(self) -> list[Part] | None:
        end = self._end.feed(self._held[self._scanned :])
        known = len(self._held) if end is None else self._scanned + end
        self._scanned = len(self._held)
        if known > MAX_CALL_CHARS:
            return self._too_long()
        return self._shown(known) or None if end is None else self._ended(known)

    def _shown(self, end: int) -> list[Part]:
        """What is certain of the call before that place."""
        return self._preview.feed(self._held[self._preview.fed : end])

    def _ended(self, end: int) -> list[Part]:
        """The object before that place, as a call or as content."""
        shown, body, preview = self._shown(end), self._cut(end), self._preview
        before, self._before, self._take = self._before, "", self._after
        in_block = self._fenced or _CLOSING in before
        found = calls_from_value(lenient_loads(body), bare=True)
        if found is None and self._python:
            found = python_calls(body, self._tools)
        calls = only_offered(found, self._tools)
        if not calls and not preview.begun:
            self._take = self._code if in_block else self._content
            return [before + body]
        self._fenced = in_block
        last = preview.settle(calls) if calls else preview.abandon(body[preview.shown :])
        return [*shown, *last]

    def _too_long(self) -> list[Part]:
        shown, preview, before = self._shown(MAX_CALL_CHARS), self._preview, self._before
        self._before, self._take = "", self._plain
        if not preview.begun:
            return [before]
        rest = self._cut(len(self._held))[preview.shown :]
        return [*shown, *preview.abandon(""), rest]

    def _after(self) -> list[Part] | None:
        """Between calls, or after the last one."""
        self._cut(_around(self._held))
        if any(tag.startswith(self._held) for tag in _TAGS) and self._held:
            return None
        if self._fenced and self._held and _CLOSING.startswith(self._held[:3]):
            if len(self._held) < len(_CLOSING):
                return None
            self._cut(len(_CLOSING))
            self._fenced = False
        elif self._held[:1] in ("{", "["):
            self._take = self._opening
        elif self._held:
            self._take = self._code if self._fenced else self._content
        return []

    def _skipped(self) -> list[Part]:
        """JSON that is no call."""
        end = self._end.feed(self._held)
        if end is not None:
            self._take = self._content
        return [self._cut(len(self._held) if end is None else end)]

    def _code(self) -> list[Part] | None:
        """A block that has no calls, or none any more: its end goes where its beginning went."""
        at = self._held.find(_CLOSING)
        if at < 0:
            content = self._cut(len(self._held.rstrip("`")))
            return [content] if content else None
        content = self._cut(at + len(_CLOSING))
        self._take, fenced, self._fenced = self._content, self._fenced, False
        return [content.removesuffix(_CLOSING) if fenced else content]

    def _plain(self) -> list[Part]:
        return [self._cut(len(self._held))]

    def _cut(self, length: int) -> str:
        """The first length characters of what is held, which they leave."""
        cut, self._held = self._held[:length], self._held[length:]
        return cut


def calls_in(text: str, tools: Tools) -> list[str | ToolCall] | None:
    """The calls in text, as JSON or Python, and the text beside them; None: there are none."""
    parser = UnmarkedCalls(tools, python=True)
    parts = (*parser.feed(text), *parser.finish())
    found = [part for part in parts if not isinstance(part, ToolCallDelta)]
    return found if any(isinstance(part, ToolCall) for part in found) else None


def _around(text: str) -> int:
    found = _AROUND.match(text)
    return found.end() if found else 0


def _may_call(text: str, names: Collection[str]) -> bool | None:
    """Whether the object that begins with text calls one of names; None: its beginning does not
    say."""
    named: bool | None = False
    given, pieces = False, (found[0] for found in _PIECE.finditer(text))
    next(pieces, None)
    for key in pieces:
        known = _among(key, _KEYS)
        if not known or next(pieces, ":") != ":":
            return False if known else known
        word, value = key[1:-1], next(pieces, None)
        if value is None or (word == "function" and value == "{"):
            continue  # whose keys count as its own
        if word in NAME_KEYS:
            named = _among(value, names)
            if not named:
                return named
        elif word == "tool_calls":
            return None if value == "[" and next(pieces, None) is None else False
        else:
            given = given or word in ARGUMENT_KEYS
            if named and given:
                return True
            if not _skipped(value, pieces):
                return None
        mark = next(pieces, ",")
        if mark != ",":
            return bool(named and given and mark == "}")
    return None


def _skipped(first: str, pieces: Iterator[str]) -> bool:
    """Read the rest of the value that begins with first, if all of it is there."""
    depth = int(first in "{[")
    while depth and (piece := next(pieces, None)) is not None:
        depth += (piece in "{[") - (piece in "}]")
    return not depth


def _among(piece: str, words: Collection[str]) -> bool | None:
    """Whether piece is a string of words; None: it begins one."""
    if len(piece) > 1 and piece.startswith('"') and piece.endswith('"'):
        return piece[1:-1] in words
    begun = piece.startswith('"') and any(word.startswith(piece[1:]) for word in words)
    return None if begun else False
