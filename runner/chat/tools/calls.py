"""Making calls out of what models write: names, arguments, types from the tools' schemas."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from runner.chat.tools.call_stream import ToolCallDelta, broken_off
from runner.chat.tools.literals import MAX_DEPTH, NotLiteral, literal
from runner.types import ToolCall

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+("|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(r"[{}\[\]]")
_SURROGATE = re.compile("[\ud800-\udfff]")
NAME_KEYS = ("name", "tool_name", "function")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
MAX_CALLS = 128

Tools = Sequence[Mapping[str, Any]]


def new_call(name: Any, arguments: Any) -> ToolCall | None:
    """A call with a fresh id; None when there is no name or the arguments are no object that JSON
    can carry. An object written as a text counts, and nothing at all is an empty one."""
    if arguments is None or arguments == "":
        arguments = {}
    elif isinstance(arguments, str):
        arguments = lenient_loads(arguments)
    if not isinstance(name, str) or not name.strip() or not isinstance(arguments, dict):
        return None
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return None
    if _depth(text) > MAX_DEPTH:
        return None
    return ToolCall(f"call_{secrets.token_hex(8)}", _valid(name.strip()), _valid(text))


def _depth(text: str) -> int:
    """How deep the brackets of a JSON text nest."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return 0
    brackets = _BRACKET.findall(_STRING.sub("", text))
    return max(accumulate(1 if bracket in "{[" else -1 for bracket in brackets), default=0)


def _valid(text: str) -> str:
    """text without halves of surrogate pairs, which no answer can carry."""
    return text.encode("utf-8", "replace").decode() if _SURROGATE.search(text) else text


def lenient_loads(text: str) -> Any:
    """The JSON value of text, also one in Python's words, with a comma before a closing bracket or
    with brackets missing or too many at its end. None when it is none."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        pass
    try:
        return literal(text)
    except NotLiteral:
        return None


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def ends_in_string(text: str) -> bool:
    """Whether text, read as JSON, ends inside a string."""
    return any(not found[1] for found in _STRING.finditer(text))


def collect_calls(
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
    shown = [part for part in parts if not isinstance(part, str) or part.strip()]
    return shown if any(isinstance(part, ToolCall) for part in shown) else None


def broken_calls(
    pattern: re.Pattern[str],
    value_end: str,
    text: str,
    make: Callable[[re.Match[str]], ToolCall | None],
) -> list[ToolCall | ToolCallDelta]:
    """The calls that pattern finds in a text that was broken off. Its groups are the name, the
    arguments and what ends a call; value_end ends an argument, and those without it are left
    out."""
    parts: list[ToolCall | ToolCallDelta] = []
    for found in pattern.finditer(text):
        if found[3]:
            call = make(found)
            parts += [] if call is None else [call]
            continue
        at = found[2].rfind(value_end)
        end = found.start(2) + (0 if at < 0 else at + len(value_end))
        begun = pattern.match(text[:end], found.start())
        call = None if begun is None else make(begun)
        parts += [] if call is None else [broken_off(call.name, json.loads(call.arguments))]
    return parts


def calls_from_json(text: str) -> list[str | ToolCall] | None:
    """Calls of one JSON object or a list of them, under the names that families use."""
    return calls_from_value(lenient_loads(text.strip()))


def calls_from_value(value: Any, *, bare: bool = False) -> list[str | ToolCall] | None:
    """Calls of an object or a list of them; None when one is no call. bare: no mark says that
    these are calls, so each needs its arguments."""
    items = value if isinstance(value, list) else [value]
    if not 0 < len(items) <= MAX_CALLS:
        return None
    calls = [_from_object(item, bare) for item in items]
    found: list[str | ToolCall] = [call for call in calls if call is not None]
    return found if len(found) == len(calls) else None


def only_offered(parts: list[str | ToolCall] | None, tools: Tools) -> list[str | ToolCall] | None:
    """parts if all calls in them are of tools that were offered."""
    names = {name_of(tool) for tool in tools}
    if parts is None or any(isinstance(p, ToolCall) and p.name not in names for p in parts):
        return None
    return parts


def name_of(tool: Mapping[str, Any]) -> str | None:
    """The name of a tool's function."""
    function = tool.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None


def _from_object(value: Any, bare: bool) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = next((value[key] for key in NAME_KEYS if key in value), None)
    key = next((key for key in ARGUMENT_KEYS if key in value), None)
    if key is None:
        return None if bare else new_call(name, {})
    return new_call(name, value[key])


def typed_call(
    name: str, texts: Iterable[tuple[str, str]], tools: Tools, as_text: Container[str] = ()
) -> ToolCall | None:
    """A call whose arguments were written as bare texts: each becomes what the tool's schema
    says, and stays a text where that is not possible, or its name is in as_text."""
    properties = properties_of(name, tools)
    arguments = {
        key: text if key in as_text else _value(text, properties.get(key)) for key, text in texts
    }
    return new_call(name, arguments)


def properties_of(name: str, tools: Tools) -> Mapping[str, Any]:
    """The schemas of a tool's arguments by name; none when the tool is unknown."""
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, Mapping) and function.get("name") == name:
            parameters = function.get("parameters")
            found = parameters.get("properties") if isinstance(parameters, Mapping) else None
            return found if isinstance(found, Mapping) else {}
    return {}


def _value(text: str, schema: Any) -> Any:
    kinds = _kinds(schema)
    if "string" in kinds:
        return text
    bare = text.strip()
    if bare in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[bare]
    try:
        return json.loads(bare, parse_constant=_refused)
    except (ValueError, RecursionError):
        pass
    value = lenient_loads(bare) if kinds & {"array", "object"} else None
    return text if value is None else value


def _kinds(schema: Any) -> set[str]:
    """The types that a schema allows at its first level."""
    if not isinstance(schema, Mapping):
        return set()
    options = schema.get("anyOf") or schema.get("oneOf")
    given = [schema, *options] if isinstance(options, list) else [schema]
    found: set[str] = set()
    for each in given:
        kind = each.get("type") if isinstance(each, Mapping) else None
        found.update(item for item in (kind if isinstance(kind, list) else [kind]) if item)
    return found
