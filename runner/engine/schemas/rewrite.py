"""A JSON schema in keywords that llguidance has, for the same values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from runner.engine.schemas.algebra import Algebra, TooMuch
from runner.engine.schemas.document import Document
from runner.engine.schemas.expressions import Unsupported
from runner.engine.schemas.languages import TooLarge
from runner.engine.schemas.numeric import is_far
from runner.engine.schemas.patterns import is_foreign
from runner.engine.schemas.places import Places, has_unique
from runner.engine.schemas.rules import rules
from runner.engine.schemas.written import Writer
from runner.errors import InvalidRequest

_BESIDE_REF = {"$ref", "$schema", "$comment", "title", "description", "default", "examples",
               "definitions", "$defs", "deprecated", "readOnly", "writeOnly"}  # fmt: skip
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def rewritten(schema: Any, param: str) -> dict[str, Any]:
    """The same in `type`, `anyOf`, `enum`, `$ref` to `$defs` and the keywords of single types,
    uniqueItems and those of rules.py among them. Raises InvalidRequest that names the keyword and
    its place under param, where it cannot be said so."""
    with _named_faults(param):
        document = Document(schema, param)
        try:
            found = Writer(Algebra(document)).document()
        except TooMuch:
            found = Writer(Algebra(document, joined=True)).document()
    if found is False or found is True:
        raise InvalidRequest(f"{param}: nothing can match it", param=param)
    return found


def written_rules(
    schema: dict[str, Any],
    param: str,
    white_space: str,
    options: dict[str, Any],
    name: str = "start",
) -> str:
    """See rules.py, for a rewritten schema. Raises InvalidRequest as rewritten does."""
    with _named_faults(param):
        return rules(schema, white_space, options, name)


@contextmanager
def _named_faults(param: str) -> Iterator[None]:
    try:
        yield
    except Unsupported as error:
        path = (error.path or param)[:300]
        raise InvalidRequest(f"{path}: {error.reason}", param=path) from None
    except (TooMuch, TooLarge, RecursionError):
        reason = "the schema has too many alternatives to be enforced"
        raise InvalidRequest(f"{param}: {reason}", param=param) from None


def misread(schema: Any) -> bool:
    """Whether llguidance takes a schema for more than its dialect says, or a pattern or a bound for
    another one: up to draft 7, nothing beside `$ref` counts."""
    said = schema.get("$schema") if isinstance(schema, dict) else None
    old = isinstance(said, str) and any(f"draft-0{number}" in said for number in (4, 6, 7))
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if old and isinstance(value.get("$ref"), str) and not value.keys() <= _BESIDE_REF:
                return True
            if any(is_far(value.get(keyword)) for keyword in _BOUNDS):
                return True
            patterns = [value.get("pattern"), *_names_of(value.get("patternProperties"))]
            if any(isinstance(one, str) and is_foreign(one) for one in patterns):
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def _names_of(value: Any) -> Iterator[str]:
    yield from value if isinstance(value, dict) else ()


def kept_apart(schema: dict[str, Any], param: str) -> tuple[dict[str, Any], Places | None]:
    """A rewritten schema without uniqueItems, and the places of arrays whose items must differ;
    None: there are none. Raises InvalidRequest as rewritten does."""
    if not has_unique(schema):
        return schema, None
    with _named_faults(param):
        places = Places(schema)
        return places.plain(), places
