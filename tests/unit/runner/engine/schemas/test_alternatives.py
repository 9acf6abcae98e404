"""Keywords that look at more than one item or property, inside alternatives, conditions and
references: jsonschema says which values match, and an answer by the masks is one of these.

SCHEMA_EXAMPLES: how many schemas are tried.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any
from unittest import mock

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runner.engine.grammar import Grammars
from runner.engine.schemas.algebra import Algebra
from runner.errors import InvalidRequest
from tests.conformance.schemas.judged import Judge, byte_grammars

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "80"))
NAMES = st.sampled_from(["a", "b", "ab"])
SCALARS = st.sampled_from([None, True, 0, 1, 2, 6, 1.5, "", "a", "ab"])


def _some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """One to three of the keywords."""
    chosen = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({n: keywords[n] for n in names}))


def _kinds(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few, lists = st.integers(0, 2), st.lists(inner, min_size=1, max_size=2)
    arrays = _some(
        uniqueItems=st.just(True),
        items=inner,
        minItems=few,
        maxItems=few.map(lambda count: count + 1),
        contains=inner,
        prefixItems=lists,
        unevaluatedItems=st.just(False),
    )
    objects = _some(
        properties=st.dictionaries(NAMES, inner, min_size=1, max_size=2),
        additionalProperties=st.one_of(st.just(False), inner),
        patternProperties=st.dictionaries(st.sampled_from(["^a", "b$"]), inner, min_size=1),
        required=st.lists(NAMES, min_size=1, max_size=2, unique=True),
        dependentRequired=st.builds(lambda one, other: {one: [other]}, NAMES, NAMES),
        dependentSchemas=st.builds(lambda one, other: {one: other}, NAMES, inner),
        propertyNames=st.sampled_from([{"maxLength": 1}, {"pattern": "a"}, {"enum": ["a", "b"]}]),
        minProperties=few,
        maxProperties=few,
        unevaluatedProperties=st.just(False),
    )
    return st.one_of(
        arrays.map(lambda one: {"type": "array", **one}),
        arrays,
        objects.map(lambda one: {"type": "object", **one}),
        objects,
        st.builds(lambda parts: {"anyOf": parts}, lists),
        st.builds(lambda parts: {"oneOf": parts}, lists),
        st.builds(lambda parts: {"allOf": parts}, lists),
        st.builds(lambda one, parts: {**one, "anyOf": parts}, st.one_of(arrays, objects), lists),
        st.builds(lambda part: {"not": part}, inner),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
        st.builds(lambda name, part: {"properties": {name: part}}, NAMES, st.just(NODE)),
        st.builds(lambda part: {"items": part}, st.just(NODE)),
    )


NODE = {"$ref": "#/$defs/node"}
LEAVES = st.sampled_from(
    [True, {"type": "string"}, {"type": "integer"}, {"const": "a"}, {"enum": [1, "ab", None]},
     {"multipleOf": 2}, {"type": "number", "multipleOf": 3}, {"minimum": 1}, {"type": "array"},
     {"type": "array", "uniqueItems": True}, {"uniqueItems": True, "minItems": 1},
     {"type": ["array", "string"], "maxItems": 2}, {"required": ["a"]}, {"minProperties": 1}]
)  # fmt: skip
SCHEMAS = st.recursive(LEAVES, _kinds, max_leaves=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        inner.map(lambda item: [item, item]),
        st.builds(lambda one, other: [one, other, one], inner, inner),
        st.dictionaries(NAMES, inner, max_size=3),
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("joined", [False, True])
@settings(max_examples=EXAMPLES, deadline=None)
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=4, max_size=8))
def test_what_matches_in_alternatives_is_what_jsonschema_says(
    joined: bool, schema: Any, node: Any, tried: list[Any]
) -> None:
    assume(isinstance(schema, dict))
    schema = {**schema, "$defs": {"node": node}}
    algebra = functools.partial(Algebra, joined=joined)
    try:
        with mock.patch("runner.engine.schemas.rewrite.Algebra", algebra):
            judge = Judge(schema, _shared(joined))
    except InvalidRequest:  # it says what is not supported
        assume(False)
    validator = jsonschema.Draft202012Validator(schema)
    for value in tried:
        told = f"{json.dumps(schema)} of {json.dumps(value)}"
        assert (judge.allowed(value) is not None) == validator.is_valid(value), told


@functools.cache
def _shared(joined: bool) -> Grammars:
    return byte_grammars()
