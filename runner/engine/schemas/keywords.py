"""The keywords of single types, as one shape for each type that a schema allows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runner.engine.schemas.document import Document
from runner.engine.schemas.expressions import Expression, Node, Unsupported
from runner.engine.schemas.formats import FORMAT_PATTERNS, FORMATS
from runner.engine.schemas.shapes import Arr, Boolean, Null, Num, Number, Obj, Shape, Some, Str

_TYPES = ("null", "boolean", "number", "string", "array", "object")


def base_shapes(node: Node, document: Document) -> list[Shape]:
    """The shapes of a schema by type and by the keywords of types. Raises Unsupported."""
    said = node.schema.get("type", _TYPES)
    types = [said] if isinstance(said, str) else said
    if not isinstance(types, list | tuple) or not {*types} <= {*_TYPES, "integer"}:
        raise Unsupported("`type` must be a type of JSON, or a list of them", node.path)
    found: list[Shape] = []
    if "null" in types:
        found.append(Null())
    if "boolean" in types:
        found.append(Boolean())
    if "number" in types or "integer" in types:
        found.append(_number(node, document, whole=None if "number" in types else True))
    if "string" in types:
        found.append(_text(node))
    if "array" in types:
        found.append(_array(node, document))
    if "object" in types:
        found.append(_object(node, document))
    return found


def literal_shapes(values: Any, node: Node, document: Document) -> list[Shape]:
    """The shapes of what is equal to one of the values. Raises Unsupported."""
    if not isinstance(values, list):
        raise Unsupported("`enum` must be a list", node.path)
    found: list[Shape] = [Null()] if None in values else []
    flags = tuple(value for value in (True, False) if any(value is each for each in values))
    numbers = tuple(
        dict.fromkeys(
            int(value) if isinstance(value, float) and value.is_integer() else value
            for value in values
            if isinstance(value, int | float) and not isinstance(value, bool)
        )
    )
    texts = tuple(dict.fromkeys(value for value in values if isinstance(value, str)))
    found += [Boolean(flags)] if flags else []
    found += [Num(values=numbers)] if numbers else []
    found += [Str(values=texts)] if texts else []
    for value in values:
        if isinstance(value, list):
            items = tuple(document.literal(item, node.path) for item in value)
            found.append(Arr(prefix=items, rest=False, low=len(items), high=len(items)))
        elif isinstance(value, dict):
            known = tuple((key, document.literal(item, node.path)) for key, item in value.items())
            found.append(Obj(known=known, extra=False, required=tuple(value)))
    return found


def _number(node: Node, document: Document, *, whole: bool | None) -> Num:
    def bound(keyword: str) -> Number | None:
        value = node.schema.get(keyword)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise Unsupported(f"`{keyword}` must be a number", node.path)

    low, high, multiple = bound("minimum"), bound("maximum"), bound("multipleOf")
    low_open = high_open = False
    if document.draft == 4:
        low_open = low is not None and node.schema.get("exclusiveMinimum") is True
        high_open = high is not None and node.schema.get("exclusiveMaximum") is True
    else:
        above, below = bound("exclusiveMinimum"), bound("exclusiveMaximum")
        if above is not None and (low is None or above >= low):
            low, low_open = above, True
        if below is not None and (high is None or below <= high):
            high, high_open = below, True
    multiples = () if multiple is None else (multiple,)
    return Num(whole, low, low_open, high, high_open, multiples)


def _count(node: Node, keyword: str) -> int | None:
    value = node.schema.get(keyword)
    if value is None:
        return None
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
    if not whole or value < 0:
        raise Unsupported(f"`{keyword}` must be a whole number", node.path)
    return int(value)


def _text(node: Node) -> Str:
    pattern, name = node.schema.get("pattern"), node.schema.get("format")
    if pattern is not None and not isinstance(pattern, str):
        raise Unsupported("`pattern` must be a text", node.path)
    patterns = [] if pattern is None else [pattern]
    if isinstance(name, str) and name in FORMAT_PATTERNS:
        patterns.append(FORMAT_PATTERNS[name])
    formats = (name,) if isinstance(name, str) and name in FORMATS else ()
    low, high = _count(node, "minLength"), _count(node, "maxLength")
    return Str(low or 0, high, tuple(patterns), formats=formats)


def _array(node: Node, document: Document) -> Arr:
    schema = node.schema
    listed, rest = "prefixItems", "items"
    if document.draft < 2020 and isinstance(schema.get("items"), list):
        listed, rest = "items", "additionalItems"
    prefix: tuple[Expression, ...] = ()
    if listed in schema:
        if not isinstance(schema[listed], list):
            raise Unsupported(f"`{listed}` must be a list", node.path)
        prefix = tuple(
            document.child(node, each, listed, at) for at, each in enumerate(schema[listed])
        )
    low, high = _count(node, "minItems"), _count(node, "maxItems")
    return Arr(
        prefix=prefix,
        rest=document.child(node, schema[rest], rest) if rest in schema else True,
        low=low or 0,
        high=high,
        unique=True if schema.get("uniqueItems") is True else None,
        some=_contained(node, document),
        evaluated=_count_evaluated(len(prefix), rest in schema) if document.evaluates else 0,
    )


def _count_evaluated(prefix: int, all_others: bool) -> int | None:
    return None if all_others else prefix


def _contained(node: Node, document: Document) -> tuple[Some, ...]:
    schema = node.schema
    if not document.has(schema, "contains"):
        return ()
    low = _count(node, "minContains") if document.has(schema, "minContains") else 1
    high = _count(node, "maxContains") if document.has(schema, "maxContains") else None
    if not low and high is None:
        return ()
    item = document.child(node, schema["contains"], "contains")
    return (Some(item, 0, node.path, low or 0, high),)


def _object(node: Node, document: Document) -> Obj:
    schema = node.schema
    required = schema.get("required", [])
    if document.draft == 4 and not isinstance(required, list):
        required = []  # of draft 3, where a property says so itself
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        raise Unsupported("`required` must be a list of texts", node.path)
    names: tuple[Expression, ...] = ()
    if document.has(schema, "propertyNames"):
        names = (document.child(node, schema["propertyNames"], "propertyNames"),)
    extra: Expression = True
    if "additionalProperties" in schema:
        extra = document.child(node, schema["additionalProperties"], "additionalProperties")
    low, high = _count(node, "minProperties"), _count(node, "maxProperties")
    known = tuple(_map(node, document, "properties"))
    patterns = tuple(_map(node, document, "patternProperties"))
    evaluated: frozenset[tuple[bool, str]] | None = frozenset()
    if document.evaluates:
        texts = [*((False, name) for name, _ in known), *((True, one) for one, _ in patterns)]
        evaluated = None if "additionalProperties" in schema else frozenset(texts)
    return Obj(
        evaluated=evaluated,
        known=known,
        patterns=patterns,
        extra=extra,
        required=tuple(dict.fromkeys(required)),
        low=low or 0,
        high=high,
        names=() if names == (True,) else names,
    )


def _map(node: Node, document: Document, keyword: str) -> Iterable[tuple[str, Expression]]:
    value = node.schema.get(keyword, {})
    if not isinstance(value, dict):
        raise Unsupported(f"`{keyword}` must be an object", node.path)
    return [(name, document.child(node, each, keyword, name)) for name, each in value.items()]
