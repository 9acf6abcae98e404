"""JSON schemas that do not say whether objects may have more properties than they list.

By JSON Schema they may, and a model adds keys until its limit cuts the answer; the grammars of
llama.cpp, and so of Ollama, allow the listed ones only. Knows no grammar and no wire format.
"""

from __future__ import annotations

from typing import Any

_MAPS = ("properties", "$defs", "definitions", "patternProperties")
_SINGLE = ("items", "additionalProperties")
_CHOICES = ("anyOf", "oneOf")
_SAYS = ("additionalProperties", "patternProperties", "unevaluatedProperties")
_ADDS = ("allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas")


def closed_schema(schema: Any) -> Any:
    """schema with additionalProperties false where an object lists properties and does not say.
    Left as they are: objects that list none, and what several schemas describe together."""
    return _closed(schema, _merged_definitions(schema), "#")


def _closed(schema: Any, merged: frozenset[str], at: str = "") -> Any:
    """merged: definitions that stay open. at: where the schema is, as $ref writes it."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for name in _MAPS:
        if isinstance(part := schema.get(name), dict):
            found[name] = {
                key: _closed(value, merged, f"{at}/{name}/{key}") for key, value in part.items()
            }
    for name in _SINGLE:
        if name in schema:
            found[name] = _closed(schema[name], merged)
    for name in ("prefixItems", *(() if "properties" in schema else _CHOICES)):
        if parts := _list(schema, name):
            found[name] = [_closed(part, merged) for part in parts]
    if len(_list(schema, "allOf")) == 1:
        found["allOf"] = [_closed(schema["allOf"][0], merged)]
    lists = isinstance(schema.get("properties"), dict)
    if lists and at not in merged and not any(name in schema for name in (*_SAYS, *_ADDS)):
        found["additionalProperties"] = False
    return found


def _merged_definitions(schema: Any) -> frozenset[str]:
    """The definitions to which others add properties: named beside properties, or one of several
    in allOf."""
    if isinstance(schema, list):
        return frozenset().union(*map(_merged_definitions, schema))
    if not isinstance(schema, dict):
        return frozenset()
    found = frozenset().union(*map(_merged_definitions, schema.values()))
    if "properties" not in schema and len(_list(schema, "allOf")) < 2:
        return found
    parts = [part for name in ("allOf", *_CHOICES) for part in _list(schema, name)]
    refs = (part.get("$ref") for part in (schema, *parts) if isinstance(part, dict))
    return found | {ref for ref in refs if isinstance(ref, str)}


def _list(schema: dict[str, Any], name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []
