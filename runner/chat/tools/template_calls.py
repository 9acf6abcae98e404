"""Calls in a notation that only a model's template shows: a tag, the name of a tool, and an object.

What stands between them is the template's own matter, and is not read: the object is looked for
that the name goes with, and the arguments in it. The rules are Ollama's for templates in Go, so
that a model that calls tools there calls them here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from runner.chat.tools.call_stream import HEADS_OF_OBJECT, CallStream, broken_off
from runner.chat.tools.calls import ARGUMENT_KEYS, Tools, lenient_loads, name_of, new_call
from runner.chat.tools.delimited import MAX_CALL_CHARS, Part, begun, without_blanks
from runner.chat.tools.json_end import JsonEnd
from runner.types import ToolCall


class TemplateCalls:
    """See runner.chat.family.ToolParser."""

    def __init__(self, tools: Tools, tag: str, end: str | None = None) -> None:
        """tag: what begins calls. end: what ends them; None: nothing does, and what follows a call
        without being one is left out."""
        names = sorted(filter(None, map(name_of, tools)), key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self._tag = tag
        self._end_tag = end
        self._held = ""
        self._blanks = ""  # before the tag
        self._calling = False
        self._called = False  # since the tag
        self._start = -1  # of the object that has begun
        self._read = 0  # of what is held, by _end
        self._end = JsonEnd()

    def stream(self, names: Iterable[str]) -> None:
        """Calls come whole."""

    def feed(self, text: str) -> list[Part]:
        """See ToolParser."""
        self._held += text
        parts: list[Part] = []
        while (found := self._take_call() if self._calling else self._take_content()) is not None:
            parts += [part for part in found if part != ""]
        return parts

    def finish(self, *, cut: bool = False) -> list[Part]:
        """See ToolParser."""
        held, self._held, calling, self._calling = self._held, "", self._calling, False
        if not calling:
            content = held[: len(held) - (begun(held, self._tag) if cut else 0)]
            return [content] if content.strip() or not self._called else []
        if cut:
            return self._broken_off(held)
        call = self._call(held)
        if call is None:
            return [] if self._called else [self._blanks + held]
        return [call]

    def _take_content(self) -> list[Part] | None:
        at = self._held.find(self._tag)
        if at >= 0:
            content = self._held[:at].rstrip()
            self._blanks, self._held = self._held[len(content) : at], self._held[at:]
            self._calling, self._called = True, False
            self._search(len(self._tag))
            return [content]
        content = without_blanks(self._held[: len(self._held) - begun(self._held, self._tag)])
        self._held = self._held[len(content) :]
        return [content] if content else None

    def _search(self, start: int) -> None:
        """Look for an object from there on."""
        self._start, self._read, self._end = -1, start, JsonEnd()

    def _take_call(self) -> list[Part] | None:
        if self._start < 0:
            if self._called and (found := self._take_end()) is not None:
                return found
            self._start = self._held.find("{", self._read)
            self._read = len(self._held) if self._start < 0 else self._start
        end = None if self._start < 0 else self._end.feed(self._held[self._read :])
        if end is None:
            self._read = len(self._held)
            return None if self._read <= MAX_CALL_CHARS else self._too_long()
        end += self._read
        call = self._call(self._held[:end])
        if call is None:
            self._search(end)
            return []
        self._held, self._called = self._held[end:], True
        self._search(0)
        return [call]

    def _take_end(self) -> list[Part] | None:
        """Leave the calls where their end stands before the next object."""
        at = -1 if self._end_tag is None else self._held.find(self._end_tag)
        if self._end_tag is None or at < 0 or 0 <= self._held.find("{") < at:
            return None
        self._held, self._calling = self._held[at + len(self._end_tag) :], False
        return []

    def _too_long(self) -> list[Part]:
        content, self._held = self._held, ""
        self._calling = False
        return [] if self._called else [self._blanks + content]

    def _name(self, text: str) -> str | None:
        """The first name of a tool in text, which begins with the tag or follows a call."""
        found = self._names.search(text, 0 if self._called else len(self._tag))
        return None if found is None else found[0]

    def _call(self, text: str) -> ToolCall | None:
        """The call of the tool named in text, by the object that text ends with."""
        name = self._name(text)
        if name is None or self._start < 0:
            return None
        arguments = arguments_in(lenient_loads(text[self._start :]), name)
        return None if arguments is None else new_call(name, arguments)

    def _broken_off(self, text: str) -> list[Part]:
        name = self._name(text)
        if name is None or self._start < 0:
            return []
        shown = CallStream(HEADS_OF_OBJECT, (name,)).feed(text[self._start :])
        return shown or [broken_off(name, {})]


def arguments_in(value: Any, name: str) -> dict[str, Any] | None:
    """The arguments of a call of the tool with this name: those beside its name, those under it,
    or the object itself. None: the object calls something without arguments that are an object."""
    if not isinstance(value, dict):
        return None
    found = _find(value, name)
    return value if found is None else found[0]


def _find(value: Any, name: str) -> tuple[dict[str, Any] | None] | None:
    """The arguments of the first call in value, perhaps none; None: there is nothing like one."""
    if isinstance(value, list):
        return _first(value, name)
    if not isinstance(value, dict):
        return None
    if "name" in value:
        given = [_object(value[key]) for key in ARGUMENT_KEYS if key in value]
        return ({} if not given else next((each for each in given if each is not None), None),)
    if (under := _object(value.get(name))) is not None:
        return (under,)
    return _first(value.values(), name)


def _first(values: Iterable[Any], name: str) -> tuple[dict[str, Any] | None] | None:
    return next((found for each in values if (found := _find(each, name)) is not None), None)


def _object(value: Any) -> dict[str, Any] | None:
    """An object, also where it is written as a text."""
    given = lenient_loads(value) if isinstance(value, str) else value
    return given if isinstance(given, dict) else None
