from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engine.schema import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_PROPERTIES,
    MAX_SCHEMA_BYTES,
    locate,
    read_schema,
)
from runner.errors import InvalidRequest


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def test_a_schema_is_an_object_or_true() -> None:
    assert read_schema('{"type": "string"}', "p") == {"type": "string"}
    assert read_schema("true", "p") is True


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "p: a JSON schema must be"),
        ("{", "p: not JSON"),
        ('{"minimum": NaN}', "p: not JSON: NaN"),
        ('{"minimum": -Infinity}', "p: not JSON: -Infinity"),
        ('{"minimum": 1e999}', "p.minimum: the number"),
        ("[" * 200_000, "p: the schema is nested too deeply"),
        (json.dumps(nested(MAX_DEPTH + 1)), "p.items.items.*: the schema is nested more"),
        (json.dumps({"enum": [0] * MAX_NODES}), "the schema has more than"),
        ("{" + " " * MAX_SCHEMA_BYTES + "}", "p: the schema has"),
        (json.dumps({"properties": dict.fromkeys(map(str, range(MAX_PROPERTIES + 1)), True)}),
         f"p: an object has more than {MAX_PROPERTIES} properties"),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_what_is_no_schema_or_too_large_is_refused_naming_the_place(text: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        read_schema(text, "p")


def test_the_largest_depth_is_allowed() -> None:
    read_schema(json.dumps(nested(MAX_DEPTH)), "p")


@given(st.text(max_size=60))
def test_any_text_is_a_schema_or_an_invalid_request(text: str) -> None:
    try:
        schema = read_schema(text, "p")
    except InvalidRequest:
        return
    assert isinstance(schema, dict | bool)


def bad(schema: Any) -> str | None:
    return "it is bad" if "BAD" in json.dumps(schema) else None


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"BAD": 1}, "p"),
        ({"properties": {"a": {"items": {"BAD": 1}}}}, "p.properties.a.items"),
        ({"anyOf": [{}, {"BAD": 1}]}, "p.anyOf.1"),
        ({"prefixItems": [{}, {"$defs": {"x": {"BAD": 1}}}]}, "p.prefixItems.1.$defs.x"),
        ({"additionalProperties": {"BAD": 1}}, "p.additionalProperties"),
        ({"items": [{"BAD": 1}]}, "p.items.0"),
    ],
)
def test_a_fault_is_placed_at_the_deepest_subschema_that_has_it(
    schema: dict[str, Any], path: str
) -> None:
    error = locate(schema, "p", bad)
    assert error.message == f"{path}: it is bad"
    assert error.details["param"] == path


def test_a_subschema_is_judged_with_the_definitions_it_may_refer_to() -> None:
    def unresolved(schema: Any) -> str | None:
        text = json.dumps(schema)
        return None if '"$defs"' in text and "BAD" not in text else "no definitions"

    schema = {"$defs": {"x": {}}, "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"BAD": 1}}}
    assert locate(schema, "p", unresolved).details["param"] == "p.properties.b"
