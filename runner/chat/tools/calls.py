"""Making calls out of what models write: names, arguments, types from the tools' schemas."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runner.types import ToolCall

_PIECES = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]|\s+|[^"{}\[\],\s]+', re.DOTALL)
"""Strings, whole or open at the end; brackets and commas; blanks; what is between."""
MOST_CALLS = 128

Tools = Sequence[Mapping[str, Any]]


def new_call(name: Any, arguments: Any) -> ToolCall | None:
    """A call with a fresh id; None when there is no name or the arguments are no object. An
    object written as a text counts."""
    if isinstance(arguments, str):
        arguments = loads(arguments)
    if not isinstance(name, str) or not name.strip() or not isinstance(arguments, dict):
        return None
    text = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(f"call_{secrets.token_hex(8)}", name.strip(), text)


def loads(text: str) -> Any:
    """The JSON value of text; a comma too many, or brackets missing at the end, are mended where
    only one reading is possible. None when it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    mended = _mended(text)
    try:
        return None if mended is None else json.loads(mended)
    except (ValueError, RecursionError):
        return None


def _mended(text: str) -> str | None:
    """text without commas before closing brackets, and with the brackets closed that are open at
    its end. Strings stay as they are; None when one is open at the end, or brackets cross."""
    out: list[str] = []
    open_: list[str] = []
    for piece in _PIECES.findall(text):
        if piece.startswith('"'):
            if len(piece) < 2 or not piece.endswith('"'):
                return None
        elif piece in "{[":
            open_.append("}" if piece == "{" else "]")
        elif piece in "}]":
            if not open_ or open_.pop() != piece:
                return None
            _drop_comma(out)
        out.append(piece)
    if open_:
        _drop_comma(out)
    return "".join(out + open_[::-1])


def _drop_comma(out: list[str]) -> None:
    while out and out[-1].isspace():
        out.pop()
    if out and out[-1] == ",":
        out.pop()


def in_string(text: str) -> bool:
    """Whether text, read as JSON, ends inside a string."""
    pieces = _PIECES.findall(text)
    last = pieces[-1] if pieces else ""
    return last.startswith('"') and (len(last) < 2 or not last.endswith('"'))


def gathered(
    pattern: re.Pattern[str], text: str, make: Callable[[re.Match[str]], ToolCall | None]
) -> list[str | ToolCall] | None:
    """The calls that pattern finds, with the text between them; None when there is none, or one
    that cannot be made."""
    parts: list[str | ToolCall] = []
    end = 0
    for found in pattern.finditer(text):
        call = make(found)
        if call is None:
            return None
        parts += [text[end : found.start()], call]
        end = found.end()
    parts.append(text[end:])
    kept = [part for part in parts if not isinstance(part, str) or part.strip()]
    return kept if any(isinstance(part, ToolCall) for part in kept) else None


def from_json(text: str) -> list[str | ToolCall] | None:
    """Calls of one JSON object or a list of them, under the names that families use."""
    value = loads(text.strip())
    items = value if isinstance(value, list) else [value]
    if not 0 < len(items) <= MOST_CALLS:
        return None
    calls = [_from_object(item) for item in items]
    found: list[str | ToolCall] = [call for call in calls if call is not None]
    return found if len(found) == len(calls) else None


def _from_object(value: Any) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = next((value[key] for key in ("name", "tool_name", "function") if key in value), None)
    keys = ("arguments", "parameters", "args", "input")
    return new_call(name, next((value[key] for key in keys if key in value), {}))


def typed(name: str, texts: Iterable[tuple[str, str]], tools: Tools) -> ToolCall | None:
    """A call whose arguments were written as bare texts: each becomes what the tool's schema
    says, and stays a text where that is not possible."""
    properties = _properties(name, tools)
    arguments = {key: _value(text, properties.get(key)) for key, text in texts}
    return new_call(name, arguments)


def _properties(name: str, tools: Tools) -> Mapping[str, Any]:
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, Mapping) and function.get("name") == name:
            parameters = function.get("parameters")
            found = parameters.get("properties") if isinstance(parameters, Mapping) else None
            return found if isinstance(found, Mapping) else {}
    return {}


def _value(text: str, schema: Any) -> Any:
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    if kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
        return text
    bare = text.strip()
    if bare in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[bare]
    try:
        return json.loads(bare)
    except (ValueError, RecursionError):
        return text
