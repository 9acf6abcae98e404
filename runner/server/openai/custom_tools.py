"""Custom tools of OpenAI: tools whose input is a text, free or of a grammar.

The model is offered a function with one argument; see runner.chat.tools.free_text.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from runner.chat.tools.free_text import (
    ARGUMENT,
    MAX_DEFINITION_CHARS,
    TextReader,
    checked_lark,
    lark_of_regex,
)
from runner.errors import InvalidRequest, Unsupported


def as_function(
    name: str, description: str | None, form: Mapping[str, Any] | None, path: str
) -> dict[str, Any]:
    """The function that stands for a custom tool. form: its format. path: of the tool, for errors.
    Raises InvalidRequest, Unsupported."""
    text: dict[str, Any] = {"type": "string", "description": "the whole input, as text"}
    function: dict[str, Any] = {
        "name": name,
        **({"description": description} if description else {}),
        "parameters": {
            "type": "object",
            "properties": {ARGUMENT: text},
            "required": [ARGUMENT],
            "additionalProperties": False,
        },
    }
    lark = _lark(form, f"{path}.format")
    return function if lark is None else {**function, "strict": True, "lark": lark}


def _lark(form: Mapping[str, Any] | None, path: str) -> str | None:
    kind = "text" if form is None else form.get("type", "text")
    if form is None or kind == "text":
        return None
    if kind != "grammar":
        raise Unsupported(
            f'{path}.type must be "text" or "grammar" (got {reprlib.repr(kind)})', param=path
        )
    given = form.get("grammar", form)
    syntax, definition = given.get("syntax"), given.get("definition")
    if not isinstance(definition, str) or not definition.strip():
        raise InvalidRequest(f"{path}: the grammar has no definition", param=path)
    if len(definition) > MAX_DEFINITION_CHARS:
        raise InvalidRequest(
            f"{path}: the definition has more than {MAX_DEFINITION_CHARS} characters", param=path
        )
    if syntax == "regex":
        return lark_of_regex(definition)
    if syntax == "lark":
        return checked_lark(definition)
    raise Unsupported(
        f'{path}.syntax must be "lark" or "regex" (got {reprlib.repr(syntax)})', param=path
    )


class CustomCalls:
    """Which of the calls of an answer are of custom tools, and what their inputs are."""

    def __init__(self, names: frozenset[str]) -> None:
        """names: of the custom tools."""
        self._names = names
        self._readers: dict[str, TextReader] = {}

    def begins(self, ident: str, name: str) -> bool:
        """A call with this id begins; whether it is of a custom tool."""
        if name in self._names:
            self._readers[ident] = TextReader()
        return name in self._names

    def read(self, ident: str, arguments: str, *, last: bool) -> str | None:
        """What a piece of a call's arguments adds to its input; None: it has none."""
        reader = self._readers.get(ident)
        return None if reader is None else reader.feed(arguments, last=last)
