from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from runner.server.closed_schema import closed_schema

TEXT = {"type": "string"}
CLOSED = {"additionalProperties": False}


def one(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: TEXT}, **more}


class Pet(BaseModel):
    name: str


class Owner(BaseModel):
    pets: list[Pet]
    first: Pet | None
    notes: dict[str, Pet]


def test_every_object_of_a_pydantic_model_is_closed() -> None:
    closed = closed_schema(Owner.model_json_schema())
    assert closed["additionalProperties"] is False
    assert closed["$defs"]["Pet"]["additionalProperties"] is False
    assert closed["properties"]["notes"]["additionalProperties"] == {"$ref": "#/$defs/Pet"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (one("a"), {**one("a"), **CLOSED}),
        ({"items": one("a")}, {"items": {**one("a"), **CLOSED}}),
        ({"anyOf": [one("a"), TEXT]}, {"anyOf": [{**one("a"), **CLOSED}, TEXT]}),
        ({"allOf": [one("a")]}, {"allOf": [{**one("a"), **CLOSED}]}),
        ({"prefixItems": [one("a")]}, {"prefixItems": [{**one("a"), **CLOSED}]}),
    ],
)
def test_objects_that_list_properties_are_closed(schema: Any, expected: Any) -> None:
    assert closed_schema(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        one("a", additionalProperties=True),
        one("a", additionalProperties=TEXT),
        one("a", patternProperties={"^b": TEXT}),
        {"allOf": [one("a"), one("b")]},
        one("a", anyOf=[one("b"), one("c")]),
        one("a", **{"$ref": "#/$defs/b", "$defs": {"b": one("b")}}),
        {"allOf": [{"$ref": "#/$defs/b"}, one("a")], "$defs": {"b": one("b")}},
        {"enum": [one("a")]},
        {"const": one("a")},
        True,
    ],
)
def test_what_says_itself_or_is_put_together_stays_as_it_is(schema: Any) -> None:
    assert closed_schema(schema) == schema


@given(
    st.recursive(
        st.none() | st.booleans() | st.just("#") | st.just("#/properties/a"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["properties", "allOf", "anyOf", "items", "$ref", "$defs", "a"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_taken_and_nothing_but_that_key_is_added(schema: Any) -> None:
    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without(v) for k, v in value.items() if k != "additionalProperties"}
        return [without(item) for item in value] if isinstance(value, list) else value

    assert without(closed_schema(schema)) == schema
