"""The arguments of a call as Lark, in each way that families write them.

Arguments that are not written as one JSON object come in the order of the schema, and only those
that it lists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runner.chat.tools.free_text import ARGUMENT
from runner.errors import Unsupported

_MAX_DEPTH = 8
_REMARKS = ("type", "title", "description")


@dataclass(frozen=True, slots=True)
class OfferedFunction:
    """A function that may be called. schema: of its arguments, a JSON object. path: of that
    schema in the request. lark: of its one argument as the inside of a JSON string, where a schema
    cannot say it."""

    name: str
    schema: Mapping[str, Any]
    path: str
    lark: str | None = None


def lark_text(value: str) -> str:
    """Lark for exactly this text."""
    return json.dumps(value, ensure_ascii=False)


def as_json(each: OfferedFunction, rule: str) -> str:
    """Arguments as a JSON object."""
    if each.lark is not None:
        begin = f'"{{" blank {lark_text(json.dumps(ARGUMENT) + ":")} blank'
        inside = f"{rule}_text: %lark {{\n{each.lark}\n}}"
        return f'{rule}: {begin} "\\"" {rule}_text "\\"" blank "}}"\n{inside}'
    schema = {**each.schema, "x-guidance": {"whitespace_pattern": r" |\r?\n[ \t]{0,16}"}}
    return f"{rule}: %json {json.dumps(schema, ensure_ascii=False)}"


def as_usual_json(each: OfferedFunction, rule: str) -> str:
    """Arguments as a JSON object of the schema's own properties in their order. Its texts may have
    any escape: with %json a model that escapes all but ASCII can begin \\uXXXX, and not end it as
    it meant. Other schemas as in as_json."""
    if not _is_flat(each.schema):
        return as_json(each, rule)
    parts = {
        name: f"{lark_text(json.dumps(name, ensure_ascii=False) + ':')} blank "
        + _usual(schema, each.schema, f"{rule}_string")
        for name, schema in _properties(each.schema).items()
    }
    return "\n".join(
        [
            f'{rule}: "{{" blank {rule}_object blank "}}"',
            _listed(f"{rule}_object", parts, each.schema, '"," blank'),
            rf'{rule}_string: /"(\\(["\\\/bfnrt]|u[0-9a-fA-F]{{4}})|[^"\\\x00-\x1f])*"/',
        ]
    )


def _is_flat(schema: Mapping[str, Any]) -> bool:
    """Whether all that may be in an object of this schema are its properties."""
    known = {"type", "properties", "required", "additionalProperties", "title", "description"}
    known |= {"$schema", "$defs", "definitions"}
    return (
        set(schema) <= known
        and schema.get("additionalProperties") is False
        and schema.get("type", "object") == "object"
        and set(schema.get("required") or ()) <= set(_properties(schema))
    )


def _usual(schema: Any, root: Mapping[str, Any], string: str) -> str:
    if _is_any_text(schema):
        return string
    known = schema if isinstance(schema, Mapping) else {}
    is_list = known.get("type") == "array" and set(known) <= {*_REMARKS, "items", "default"}
    if is_list and _is_any_text(known.get("items")):
        return f'"[" blank ({string} ("," blank {string})*)? blank "]"'
    return _json(schema, root)


def _is_any_text(schema: Any) -> bool:
    return (
        isinstance(schema, Mapping)
        and schema.get("type") == "string"
        and set(schema) <= {*_REMARKS, "default", "examples"}
    )


def bare_values(before: str, between: str, after: str) -> Callable[[OfferedFunction, str], str]:
    """Arguments written one by one, as names and bare values in the order of the schema."""

    def arguments(each: OfferedFunction, rule: str) -> str:
        properties = each.schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        required = each.schema.get("required") or ()
        parts, rules = [], []
        for number, (name, schema) in enumerate(known.items()):
            part = f"{rule}_{number}"
            parts.append(part if name in required else f"{part}?")
            value = _value(schema, each.schema, after, f"{part}_text")
            rules.append(f"{part}: {lark_text(before + name + between)} {value}")
        return "\n".join([f"{rule}: {' '.join(parts) or lark_text('')}", *rules])

    return arguments


def _value(schema: Any, root: Mapping[str, Any], after: str, rule: str) -> str:
    """Lark of a bare value and what ends it: a text as it stands, all else as JSON."""
    known = schema if isinstance(schema, Mapping) else {}
    words = [known["const"]] if "const" in known else known.get("enum")
    if isinstance(words, list) and words and all(isinstance(word, str) and word for word in words):
        return f"({' | '.join(map(lark_text, words))}) {lark_text(after)}"
    if known.get("type", "string") == "string" and not {"$ref", "enum"} & set(known):
        first = after.strip("\n").replace("/", "\\/")
        return (
            f"{rule} {lark_text(after[len(after.rstrip(chr(10))) :])}\n"
            f"{rule}[lazy]: /(.|\\n)*{first}/"
        )
    defined = {name: root[name] for name in ("$defs", "definitions") if name in root}
    return f"%json {json.dumps({**known, **defined}, ensure_ascii=False)} {lark_text(after)}"


def keyword_values(each: OfferedFunction, rule: str) -> str:
    """Arguments as KEY=JSON, ... between the brackets of a call in Python."""
    parts = {
        name: f"{lark_text(name + '=')} {_json(schema, each.schema)}"
        for name, schema in _properties(each.schema).items()
    }
    return _listed(rule, parts, each.schema, lark_text(", "))


def braced_values(quote: str) -> Callable[[OfferedFunction, str], str]:
    """Arguments as KEY:VALUE,... with bare keys, texts between two of the marker named quote."""

    def arguments(each: OfferedFunction, rule: str) -> str:
        place = f"{each.path}.properties"
        parts = {
            name: f"{lark_text(name + ':')} {_braced(schema, quote, f'{place}.{name}', 0)}"
            for name, schema in _properties(each.schema).items()
        }
        return _listed(rule, parts, each.schema, lark_text(","))

    return arguments


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _listed(rule: str, parts: Mapping[str, str], schema: Mapping[str, Any], between: str) -> str:
    """Lark of a list of parts, in their order, without those that are not required. A rule for
    each place and for whether something stands before it. between: Lark."""
    required, rules = schema.get("required") or (), []
    names = list(parts)
    for number, name in enumerate(names):
        part, first, later = (f"{rule}_{kind}_{number}" for kind in ("part", "first", "later"))
        next_first, next_later = f"{rule}_first_{number + 1}", f"{rule}_later_{number + 1}"
        rules.append(f"{part}: {parts[name]}")
        needed = name in required
        rules.append(f"{first}: {part} {next_later}" + ("" if needed else f" | {next_first}"))
        given = f"({between} {part})"
        rules.append(f"{later}: {given}{'' if needed else '?'} {next_later}")
    end = len(names)
    empty = lark_text("")
    rules += [f"{rule}_first_{end}: {empty}", f"{rule}_later_{end}: {empty}"]
    return "\n".join([f"{rule}: {rule}_first_0", *rules])


def _json(schema: Any, root: Mapping[str, Any]) -> str:
    known = schema if isinstance(schema, Mapping) else {}
    defined = {name: root[name] for name in ("$defs", "definitions") if name in root}
    return f"%json {json.dumps({**known, **defined}, ensure_ascii=False)}"


def _braced(schema: Any, quote: str, place: str, depth: int) -> str:
    """Lark of a value. Raises Unsupported for schemas whose values cannot be written so."""
    known = schema if isinstance(schema, Mapping) else {}
    words = [known["const"]] if "const" in known else known.get("enum")
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return f"{quote} ({' | '.join(map(lark_text, words))}) {quote}"
    kind = known.get("type", "string")
    if kind in ("integer", "number", "boolean", "null") or isinstance(words, list):
        return _json(known, {})
    if depth < _MAX_DEPTH and not {"$ref", "anyOf", "oneOf", "allOf"} & set(known):
        if kind == "string":
            return f"{quote} /[^<]*/ {quote}"
        if kind == "array":
            item = _braced(known.get("items"), quote, f"{place}.items", depth + 1)
            return f'"[" ({item} ("," {item})*)? "]"'
        if kind == "object" and set(_properties(known)) <= set(known.get("required") or ()):
            inner = [
                f"{lark_text(name + ':')} {_braced(each, quote, f'{place}.{name}', depth + 1)}"
                for name, each in _properties(known).items()
            ]
            return " ".join(['"{"', ' "," '.join(inner), '"}"'])
    raise Unsupported(
        f"{place}: this model's way of writing calls cannot be enforced for this schema; use "
        "simple types, and objects whose properties are all required",
        param=place,
    )
