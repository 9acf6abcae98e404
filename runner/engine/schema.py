"""What is checked of a JSON schema before it is compiled, and where in it a fault lies.

Knows JSON and paths; whether a schema can be compiled it is told by a function.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from runner.errors import InvalidRequest

MAX_SCHEMA_BYTES = 512 * 1024
MAX_DEPTH = 64
MAX_NODES = 20_000
MAX_REPEATS = 10_000  # in a regular expression; 0.06 s to compile
MAX_TEXT = 16 * 1024  # characters of one text; compiling takes the square: 0.1 s
MAX_PROPERTIES = 1_000  # of one object: 0.3 s to compile; the time grows with the square
SEARCH_S = 0.3  # to find the place of a fault

_REPEAT = re.compile(r"\{\s*+(\d++)\s*+(?:,\s*+(\d*+)\s*+)?+\}")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE = ("items", "additionalProperties", "additionalItems", "not", "if", "then", "else",
           "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems")  # fmt: skip
_REMARKS = (".description", ".title", ".$comment")
_DEFINITIONS = ("$defs", "definitions")

Fault = Callable[[Any], str | None]  # what is wrong with a schema; None: nothing


def read_schema(text: str, param: str) -> Any:
    """The schema in text. Raises InvalidRequest naming the place under param when it is no JSON
    schema, or too large to compile."""
    if len(text) > MAX_SCHEMA_BYTES:
        raise _invalid(param, f"the schema has {len(text)} characters, at most {MAX_SCHEMA_BYTES}")
    try:
        schema = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise _invalid(param, "the schema is nested too deeply") from None
    except ValueError as error:
        raise _invalid(param, f"not JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise _invalid(param, "a JSON schema must be an object or true")
    _check_size(schema, param)
    return schema


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _check_size(schema: Any, param: str) -> None:
    count, stack = 0, [(schema, param, 0)]
    while stack:
        value, path, depth = stack.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise _invalid(path[:200], f"the schema is nested more than {MAX_DEPTH} levels deep")
        if count > MAX_NODES:
            raise _invalid(path[:200], f"the schema has more than {MAX_NODES} values")
        if isinstance(value, float) and not math.isfinite(value):
            raise _invalid(path[:200], "the number is too large")
        is_long = isinstance(value, str) and len(value) > MAX_TEXT
        if is_long and not path.endswith(_REMARKS):
            raise _invalid(path[:200], f"a text of {len(value)} characters, at most {MAX_TEXT}")
        if isinstance(value, dict):
            _check_pattern(value, path[:200])
            known = value.get("properties")
            if isinstance(known, dict) and len(known) > MAX_PROPERTIES:
                raise _invalid(path[:200], f"an object has more than {MAX_PROPERTIES} properties")
            stack += [(item, f"{path}.{key}", depth + 1) for key, item in value.items()]
        elif isinstance(value, list):
            stack += [(item, f"{path}.{index}", depth + 1) for index, item in enumerate(value)]


def _check_pattern(schema: dict[str, Any], path: str) -> None:
    nested = schema.get("patternProperties")
    patterns = [schema.get("pattern"), *(nested if isinstance(nested, dict) else ())]
    for pattern in patterns:
        if isinstance(pattern, str):
            check_repeats(pattern, path)


def check_repeats(pattern: str, path: str) -> None:
    """Raises InvalidRequest for a regular expression, or a text with some, that repeats something
    more often than can be compiled quickly."""
    for found in _REPEAT.finditer(pattern):
        if any(_too_many(count) for count in found.groups() if count):
            raise _invalid(path, f"{found[0][:40]} repeats more than {MAX_REPEATS} times")


def _too_many(count: str) -> bool:
    digits = count.lstrip("0")
    return len(digits) > 9 or int(digits or 0) > MAX_REPEATS


def locate(schema: Any, param: str, fault: Fault) -> InvalidRequest:
    """The error for a schema in which fault found something: at the deepest subschema that has
    it when it stands alone."""
    path, reason = param, fault(schema) or "it cannot be compiled"
    root, end_s = schema, time.monotonic() + SEARCH_S
    found = True
    while found:
        found = False
        for step, child in _children(schema):
            if time.monotonic() > end_s:
                break
            wrong = fault(_alone(child, root))
            if wrong is not None:
                schema, path, reason, found = child, f"{path}.{step}", wrong, True
                break
    return _invalid(path[:300], reason)


def _alone(child: Any, root: Any) -> Any:
    """A subschema with the definitions that it may refer to."""
    if not isinstance(child, dict) or not isinstance(root, dict):
        return child
    return {**{name: root[name] for name in _DEFINITIONS if name in root}, **child}


def _children(schema: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(schema, dict):
        return
    for name in _NAMED:
        inner = schema.get(name)
        if isinstance(inner, dict):
            yield from ((f"{name}.{key}", child) for key, child in inner.items())
    for name in _LISTS:
        inner = schema.get(name)
        if isinstance(inner, list):
            yield from ((f"{name}.{index}", child) for index, child in enumerate(inner))
    for name in _SINGLE:
        if isinstance(schema.get(name), dict):
            yield name, schema[name]


def _invalid(path: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: {reason}", param=path)
