"""Calls that stand between two markers: what most tool formats have in common.

Text that only looks like a call is content: nothing a model wrote is lost, except blanks beside
calls. Every character is looked at a bounded number of times. What stands between the markers is
the family's own matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from runner.chat.tools.call_stream import CallHeads, CallStream, ToolCallDelta
from runner.chat.tools.calls import ends_in_string
from runner.chat.tools.json_end import JsonEnd
from runner.types import ToolCall

MAX_CALL_CHARS = 65_536  # a longer one is content
_MAX_ENDS = 16  # end markers in the texts of one call
_MAX_BLANKS = 256  # held back before what may be a call

Decode = Callable[[str], list[str | ToolCall] | None]
Part = str | ToolCall | ToolCallDelta


@dataclass(frozen=True, slots=True)
class Delimiters:
    """What stands around calls. decode turns what is between into calls, and text beside them;
    None: there are none. end None: calls last to the end of the text. noise: markers that models
    write after a call and that say nothing. quoted: whether a text ends within a string, where an
    end marker would be a part of it; None: values have no quotation marks. heads: what stands
    before arguments that are JSON; None: they are not. before: what heads see before it.
    decode_cut: the same as decode of a text that was broken off, where heads do not say it."""

    begin: str
    end: str | None
    decode: Decode
    noise: tuple[str, ...] = ()
    quoted: Callable[[str], bool] | None = ends_in_string
    heads: CallHeads | None = None
    before: str = ""
    decode_cut: Callable[[str], Sequence[str | ToolCall | ToolCallDelta]] | None = None

    def ends_quoted(self, text: str) -> bool:
        """Whether an end marker after text would be a part of a string."""
        return self.quoted is not None and self.quoted(text)


class DelimitedParser:
    """See runner.chat.family.ToolParser. A call whose end marker is missing counts if it is
    complete."""

    def __init__(self, *delimiters: Delimiters) -> None:
        """delimiters: those of the family, the outer ones first."""
        self._delimiters = {each.begin: each for each in delimiters}
        self._begins = tuple(self._delimiters)
        self._pattern = re.compile("|".join(map(re.escape, self._begins)))
        self._noise = tuple(marker for each in delimiters for marker in each.noise)
        self._held = ""
        self._blanks = ""  # before the call that has begun
        self._searched = 0  # of _held inside a call: no end marker before here
        self._ends = 0  # end markers that were taken for a part of a text
        self._inside: Delimiters | None = None
        self._after_call = False  # white space here only separates calls
        self._names: frozenset[str] = frozenset()
        self._preview = CallStream(None, ())  # of the call that has begun

    @classmethod
    def of_section(
        cls, section: tuple[str, str], call: tuple[str, str], decode: Decode, heads: CallHeads
    ) -> Self:
        """For calls with markers of their own, begin and end, in a section with others. A call may
        stand alone, without the section's."""
        begin, end = call
        alone = Delimiters(
            *(begin, end, lambda text: decode(begin + text), section[1:]),
            heads=heads,
            before=begin,
        )
        return cls(Delimiters(*section, decode, heads=heads), alone)

    def stream(self, names: Iterable[str]) -> None:
        """See ToolParser."""
        self._names = frozenset(names)

    def feed(self, text: str) -> list[Part]:
        """See ToolParser."""
        self._held += text
        parts: list[Part] = []
        while (found := self._take()) is not None:
            parts += [part for part in found if part != ""]
        return parts

    def finish(self, *, cut: bool = False) -> list[Part]:
        """See ToolParser."""
        if cut:
            return self._broken_off()
        parts: list[Part] = []
        while self._inside is not None:
            calls = _decoded(self._inside, self._held[len(self._inside.begin) :])
            parts += self._shown(self._inside, len(self._held))
            if calls:
                parts += self._preview.settle(calls)
                self._inside, self._held = None, ""
            else:
                parts += self._give_up(len(self._held))
                parts += self.feed("")
        rest, self._held = self._held, ""
        return [*parts, rest] if rest else parts

    def _broken_off(self) -> list[Part]:
        """What is certain of the text that is held, which has no end."""
        inside, held = self._inside, self._held
        self._inside, self._held = None, ""
        ends = (*self._begins, *self._noise, "" if inside is None else inside.end or "")
        marker = max(begun(held, each) for each in ends)
        if inside is None:
            return [content] if (content := held[:-marker].rstrip() if marker else held) else []
        body = held[len(inside.begin) : len(held) - marker]
        if inside.decode_cut is not None:
            return [*inside.decode_cut(body)]
        preview, shown = self._preview, []
        if preview.begun:
            start = preview.fed - len(inside.before)
            shown = preview.feed(body[start:]) if start < len(body) else []
        else:
            preview = CallStream(inside.heads, None)
            shown = preview.feed(inside.before + body)
        if preview.in_call or not (preview.begun or _closes(body)):
            return shown
        calls = inside.decode(body) or []
        count = sum(isinstance(part, ToolCall) for part in calls)
        if preview.begun and count != preview.count:
            return shown  # the last one is none yet
        return [*shown, *preview.settle(calls)]

    def _take(self) -> list[Part] | None:
        """The next parts that are complete, perhaps nothing to show but more to do, or None."""
        return self._take_content() if self._inside is None else self._take_call(self._inside)

    def _take_content(self) -> list[Part] | None:
        if self._after_call and not self._skip_noise():
            return None
        found = self._pattern.search(self._held)
        if found is not None:
            before, self._held = self._held[: found.start()], self._held[found.start() :]
            content = before.rstrip()
            self._blanks = before[len(content) :]
            self._inside, self._ends = self._delimiters[found[0]], 0
            self._searched = len(found[0])
            self._preview = CallStream(self._inside.heads, self._names)
            self._preview.feed(self._inside.before)
            return [content]
        keep = max(begun(self._held, marker) for marker in self._begins)
        content = without_blanks(self._held[: len(self._held) - keep])  # a call would follow them
        self._held = self._held[len(content) :]
        return [content] if content else None

    def _skip_noise(self) -> bool:
        """Whether the text after a call goes on: blanks and noise are dropped."""
        self._held = self._held.lstrip()
        for marker in self._noise:
            if self._held.startswith(marker):
                self._held = self._held[len(marker) :]
                return self._skip_noise()
        begun = any(marker.startswith(self._held) for marker in self._noise)
        self._after_call = not self._held or begun
        return not self._after_call

    def _take_call(self, delimiters: Delimiters) -> list[Part] | None:
        end = -1 if delimiters.end is None else self._held.find(delimiters.end, self._searched)
        known = len(self._held) - begun(self._held, delimiters.end or "") if end < 0 else end
        shown = self._shown(delimiters, min(known, MAX_CALL_CHARS))
        if (len(self._held) if end < 0 else end) > MAX_CALL_CHARS:
            return [*shown, *self._give_up(len(delimiters.begin))]
        if end < 0 or delimiters.end is None:
            self._searched = max(len(delimiters.begin), len(self._held) - len(delimiters.end or ""))
            return shown or None
        body = self._held[len(delimiters.begin) : end]
        calls = _decoded(delimiters, body)
        if not calls and self._ends < _MAX_ENDS and delimiters.ends_quoted(body):
            self._searched, self._ends = end + len(delimiters.end), self._ends + 1
            return shown
        if not calls:
            return [*shown, *self._give_up(end + len(delimiters.end))]
        self._inside, self._held = None, self._held[end + len(delimiters.end) :]
        self._after_call, self._blanks = True, ""
        return [*shown, *self._preview.settle(calls)]

    def _shown(self, delimiters: Delimiters, end: int) -> list[Part]:
        """What is certain of the call before that place of what is held."""
        start = len(delimiters.begin) + self._preview.fed - len(delimiters.before)
        return self._preview.feed(self._held[start:end]) if start < end else []

    def _abandoned(self, delimiters: Delimiters, length: int) -> list[Part]:
        """A call that was shown and cannot be read: it is no content any more."""
        preview = self._preview
        written = len(delimiters.begin) + preview.shown - len(delimiters.before)
        cut = max(length, written)
        end = (
            length - len(delimiters.end or "")
            if self._held[:length].endswith(delimiters.end or " ")
            else cut
        )
        parts = preview.abandon(self._held[written : max(end, written)])
        self._held, self._inside, self._blanks = self._held[cut:], None, ""
        self._after_call = True
        return [*parts]

    def _give_up(self, length: int) -> list[Part]:
        """The first length characters as content, but not the last call that begins in them:
        models repeat a marker when they start again."""
        assert self._inside is not None
        begin = self._inside.begin
        again = self._held.rfind(begin, len(begin), length)
        cut = again if again > 0 else length
        if self._preview.begun:
            return self._abandoned(self._inside, cut)
        content, self._held = self._blanks + self._held[:cut], self._held[cut:]
        self._inside, self._blanks = None, ""
        return [content]


def _decoded(delimiters: Delimiters, body: str) -> list[str | ToolCall] | None:
    """The calls in body, which may begin with the marker once more."""
    calls = delimiters.decode(body)
    again = body.lstrip()
    if calls or not again.startswith(delimiters.begin):
        return calls
    return delimiters.decode(again[len(delimiters.begin) :])


def _closes(body: str) -> bool:
    """Whether all brackets of one JSON value are closed in body, which is nothing else."""
    return JsonEnd().feed(body) == len(body.rstrip()) > 0


def without_blanks(text: str) -> str:
    """text without the blanks at its end, unless they are many: they would be looked at with
    each piece that follows."""
    content = text.rstrip()
    return content if len(text) - len(content) <= _MAX_BLANKS else text


def begun(text: str, marker: str) -> int:
    """How many characters at the end of text may be the beginning of marker."""
    if not marker:
        return 0
    at = text.find(marker[0], max(0, len(text) - len(marker) + 1))
    while at >= 0:
        if marker.startswith(text[at:]):
            return len(text) - at
        at = text.find(marker[0], at + 1)
    return 0
