"""Making calls out of what models write: names, arguments, types from the tools' schemas."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.types import ToolCall

_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
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
    for candidate in (text, _TRAILING_COMMA.sub(r"\1", text), _closed(text)):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    return None


def _closed(text: str) -> str:
    """text with the brackets closed that are open at its end, unless that is inside a string."""
    open_: list[str] = []
    quoted = escaped = False
    for char in text:
        if quoted:
            quoted = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            quoted = True
        elif char in "{[":
            open_.append("}" if char == "{" else "]")
        elif char in "}]" and (not open_ or open_.pop() != char):
            return text
    return text if quoted else text + "".join(reversed(open_))


def from_json(text: str) -> list[ToolCall] | None:
    """Calls of one JSON object or a list of them, under the names that families use."""
    value = loads(text.strip())
    items = value if isinstance(value, list) else [value]
    if not 0 < len(items) <= MOST_CALLS:
        return None
    calls = [_from_object(item) for item in items]
    found = [call for call in calls if call is not None]
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
