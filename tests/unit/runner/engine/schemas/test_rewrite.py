"""Rewritten schemas have the same values: jsonschema is asked, and llguidance with its masks."""

from __future__ import annotations

import json
import keyword
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runner.engine.grammar import Grammars
from runner.engine.schemas.rewrite import rewritten
from runner.errors import InvalidRequest
from tests.conformance.schemas.judged import Judge, byte_grammars
from tests.properties import examples


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return byte_grammars()


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}, "x": {}, "y": {}}}
KINDS = {
    "type": "object",
    "properties": {"k": {"enum": ["a", "b", "c"]}, "v": {}},
    "required": ["k"],
    "allOf": [
        {"if": {"properties": {"k": {"const": one}}}, "then": {"properties": {"v": {"type": kind}}}}
        for one, kind in (("a", "string"), ("b", "integer"))
    ],
}


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"oneOf": [{"type": "integer"}, {"maximum": 3, "type": "string"}]}, [1, "a"], [None]),
        (
            {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            [{"a": 1}, {"b": 1}],
            [{}, {"a": 1, "b": 1}],
        ),
        ({"not": {"enum": ["x", 2]}}, ["y", 3, {}], ["x", 2]),
        ({"type": "string", "not": {"pattern": "^a"}}, ["b", ""], ["ab"]),
        (KINDS, [{"k": "a", "v": "x"}, {"k": "c", "v": None}], [{"k": "b", "v": "x"}, {}]),
        ({"dependencies": {"a": ["b"]}}, [{"b": 1}, {"b": 2, "a": 1}, 3], [{"a": 1}]),
        ({"dependentSchemas": {"a": {"maxProperties": 1}}}, [{"a": 1}], [{"a": 1, "b": 1}]),
        ({"propertyNames": {"pattern": "^a", "maxLength": 2}}, [{"ab": 1}], [{"b": 1}, {"abc": 1}]),
        (
            {"patternProperties": {"^a": {"type": "string"}, "b$": {"minLength": 2}}},
            [{"ab": "xy", "a": "x", "c": 1}],
            [{"ab": "x"}, {"a": 1}],
        ),
        (
            {"properties": {"ab": {"contains": {"const": 1}}},
             "patternProperties": {"^a": {"maxItems": 1}}},
            [{"ab": [1], "ac": [2]}, {"ab": 3}],
            [{"ab": [1, 2]}, {"ab": [2]}, {"ac": [1, 2]}],
        ),
        (
            {"propertyNames": {"enum": ["a", "b-c", "d"]}, "properties": {"d": {"const": 7}},
             "patternProperties": {"^b": {"type": "string"}},
             "additionalProperties": {"minimum": 3}},
            [{"a": 3, "b-c": "x"}, {"d": 7}, {}],
            [{"a": 2}, {"b-c": 4}, {"b": "x"}, {"d": 8}, {"e": 3}],
        ),
        (
            {"type": "integer", "minimum": -(2**63), "maximum": 2**64 - 1},
            [2**64 - 1, 2**63, 0, 7, -1, -(2**63)],
            [2**64, 10**20, -(2**63) - 1, 0.5],
        ),
        ({"minimum": 2**53 + 1}, [2**53 + 1, 10**17, "a"], [2**53, 0, -1]),
        (
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1.79769e308},
            [0.5, 1, 17, 2.25, 10**30],
            [0, -1, -0.5, 18 * 10**307],
        ),
        (
            {"properties": {"ab": {"type": "string"}}, "propertyNames": {"pattern": "^a"},
             "additionalProperties": {"type": "integer"}},
            [{"ab": "x", "ac": 1}],
            [{"ab": 1}, {"ac": "x"}, {"b": 1}],
        ),
        (
            {"not": {"properties": {"ab": {"type": "integer"}}, "additionalProperties": False,
                     "patternProperties": {"^a": {"minimum": 3}}},
             "properties": {"ab": {}}, "additionalProperties": False},
            [{"ab": 1}, {"ab": "x"}],
            [{"ab": 3}, {}],
        ),
        (
            {"patternProperties": {"^[a-z][0-9a-z_]*": {"$ref": "#"}}, "not": {"type": "integer"},
             "properties": {"kind": {"const": "d"}}, "additionalProperties": False},
            [{"a": {"kind": "d"}, "b": "c"}, {"a": {}}],
            [{"kind": "e"}, {"a": {"a": 1}}, {"A": "b"}],
        ),
        (
            {"properties": {f"p{n}": {"type": "integer"} for n in range(12)}, "minProperties": 3,
             "maxProperties": 4, "not": {"required": ["p1"]}},
            [{"p0": 1, "p5": 2, "p9": 3}, {"p0": 1, "p5": 2, "x": 3, "y": 4}],
            [{"p0": 1, "p5": 2}, {"p0": 1, "p1": 1, "p2": 1}, {f"p{n}": n for n in range(2, 7)}],
        ),
        (
            {"properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2, "type": "object",
             "additionalProperties": False},
            [{"a": 1, "c": 1}],
            [{"a": 1}],
        ),
        ({"contains": {"const": 1}, "maxItems": 2}, [[1], [2, 1]], [[], [2]]),
        (
            {"$ref": "#/$defs/n", "$defs": {"n": {**NODE, "dependentRequired": {"x": ["y"]}}}},
            [{"next": {"x": 1, "y": 2}}],
            [{"next": {"x": 1}}],
        ),
        (
            {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
            [{"a": 1}],
            [{"b": 1}],
        ),
        ({"prefixItems": [{}], "unevaluatedItems": {"type": "null"}}, [[1, None]], [[1, 2]]),
        (
            {"not": {"properties": {"a": {}}, "additionalProperties": False}, "maxProperties": 1,
             "properties": {"a": False}},
            [{"b": 1}],
            [{}, {"a": 1}],
        ),
        ({"pattern": "^[a[b]]$"}, ["a]", "[]", "b]"], ["a", "[", "]"]),
        ({"pattern": "^[^]{[&&x]$"}, ["y{x", "\n{&"], ["{[x", "y{y"]),
        ({"pattern": r"^\${.+}$"}, ["${a}"], ["${}", "$a"]),
        ({"pattern": "^(?:^[a-z]+:)?[^:]*$"}, ["a:b", "b", ""], ["a:b:c", "1:b"]),
        (
            {"patternProperties": {"^[^b]$": {"type": "integer"}, "\\\\": {"type": "null"},
                                   "x/": {}},
             "properties": {"\n": {"minimum": 3}, "a\\": {}}, "additionalProperties": False},
            [{"\n": 3, '"': 1, "a\\": None}, {"é": 1, "\u0001": 2, "ab\\": None}, {"x/\t": "y"}],
            [{"\n": 2}, {'"': "x"}, {"a\\": 1}, {"ab": 1}, {"\\": None}, {"\t": "x"}, {"b": 1}],
        ),
        (
            {"not": {"properties": {"a": {}}, "additionalProperties": False}},
            [{"b": 1}, {"a": 1, "b": 1}],
            [{}, {"a": 1}, 3],
        ),
        (
            {"not": {"additionalProperties": {"type": "integer"}},
             "properties": {"a": {}, "b": {"type": "string"}, "c": False}},
            [{"a": "x"}, {"b": "y"}, {"a": 1, "b": "y"}, {"a": 1, "d": None}, {"d": 1, "e": "x"}],
            [{}, {"a": 1}, {"d": 1, "e": 2}, {"b": 1}],
        ),
        (
            {"oneOf": [{"additionalProperties": {"type": "integer"}},
                       {"propertyNames": {"pattern": "^a"}}]},
            [{"a": "x"}, {"b": 1}, {"a": "x", "ab": 1}],
            [{}, {"a": 1}, {"a": "x", "b": 1}],
        ),
        (
            {"allOf": [{"not": {"patternProperties": {"^a": {"type": "string"}}}},
                       {"not": {"patternProperties": {"b$": {"minimum": 5}}}}],
             "maxProperties": 2, "required": ["c"]},
            [{"c": 1, "ab": 1}],
            [{"ab": 1}, {"c": 1, "ab": 6}, {"c": 1, "ab": "x"}, {"c": 1}],
        ),
        (
            {"allOf": [{"not": {"patternProperties": {"^a": {"type": "string"}}}},
                       {"not": {"patternProperties": {"b$": {"minimum": 5}}}}], "required": ["ac"]},
            [{"ac": 1, "bb": 1}, {"ac": "x", "ab": 1}, {"ac": "x", "aa": 1, "b": 2}],
            [{"ac": 1}, {"ac": "x", "bb": 1}, {"ac": 1, "bb": 6}],
        ),
        (
            {"oneOf": [{"required": [key], "properties": {
                key: {"type": "string"}, "n": {"type": "integer"}, f"{key}x": {"minimum": 2}}}
                for key in "abcdefghi"]},
            [{"a": "x"}, {"a": "x", "b": 1}, {"c": "y", "b": "x", "n": 3, "bx": 1},
             {"i": "", "q": 1},
             {f"{key}x": 1 for key in "bcdefghi"} | dict.fromkeys("abcdefghi", "x")],
            [{}, {"a": "x", "b": "y"}, {"a": 1}, {"a": "x", "n": "y"}, {"i": "", "ix": 1},
             {"c": "y", "b": "x", "n": 3, "bx": 2}, {f"{key}x": 1 for key in "abcdefghi"}],
        ),
        ({"format": "color"}, ["x", 1], []),
        ({"not": {"type": "integer"}}, [1.5, -0.25, 1e-7, 10.5e-3, "a", {}], [0, 1, -3, 1.0]),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, [1, -3, 2.5, 9.25], [2, 1.5, -2.5]),
        ({"oneOf": [{"type": "integer"}, {"maximum": -2}]}, [1, -2.5], [-2, -1.5, 0.5, 2.5]),
        ({"not": {"type": "array", "items": {"type": "integer"}}},
         [[1.5], [1, 1.5], [-2.5, 3], [5e-3]], [[1], [], [-2, 30]]),
        ({"contains": {"minimum": 13, "maximum": 250, "not": {"type": "integer"}}},
         [[13.5], [99.25, 1], [249.75], [1, 200.5]], [[13], [12.5], [250.5], [99]]),
        ({"contains": {"minimum": 5}}, [[1, 5], [5, 1], [1, None], {}], [[], [1], [1, 2.5]]),
        ({"contains": {"const": 1}, "minContains": 2}, [[1, 2, 1]], [[1, 2], [1], []]),
        (
            {"contains": {"const": 1}, "minContains": 0, "maxContains": 1, "uniqueItems": True},
            [[], [2, 1], [1, 2]],
            [[1, 1], [2, 2], [1, 2, 1]],
        ),
        (
            {"contains": {"const": 1}, "allOf": [{"contains": {"type": "string"}}],
             "prefixItems": [{"type": "boolean"}], "minItems": 4},
            [[True, 1, "a", 2], [False, "a", 1, 1]],
            [[True, 1, "a"], [1, "a", 1, 1], [True, 1, 1, 1]],
        ),
        ({"not": {"contains": {"const": 1}, "minContains": 2}, "type": "array"},
         [[1], [], [2, 1]], [[1, 1], [1, 2, 1]]),
        (
            {"properties": {"a": {"contains": {"const": 1}}, "b": {}, "c": False},
             "patternProperties": {"^x": {"type": "null"}}, "required": ["b", "xy"]},
            [{"a": [1], "b": 2, "xy": None, "z": 1}, {"b": {"c": []}, "xy": None, "x": None}],
            [{"a": [2], "b": 2, "xy": None}, {"b": 1}, {"b": 1, "xy": 1},
             {"b": 1, "xy": None, "c": 1}],
        ),
        (
            {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {
                "next": {"$ref": "#/$defs/n"}, "x": {"contains": {"const": 1}}}}}},
            [{"next": {"next": {"x": [2, 1]}}}, {"y": 3}],
            [{"next": {"next": {"x": [2]}}}, {"x": []}],
        ),
        (
            {"$id": "http://x/strict", "$dynamicAnchor": "n", "$ref": "tree",
             "unevaluatedProperties": False,
             "$defs": {"tree": {"$id": "tree", "$dynamicAnchor": "n", "properties": {
                 "next": {"$dynamicRef": "#n"}}}}},
            [{"next": {}}, {"next": {"next": {}}}],
            [{"next": {"x": 1}}, {"x": 1}],
        ),
        (
            {"$schema": "https://json-schema.org/draft/2019-09/schema", "$id": "http://x/strict",
             "$recursiveAnchor": True, "$ref": "tree", "properties": {"v": {"type": "string"}},
             "$defs": {"tree": {"$id": "tree", "$recursiveAnchor": True, "properties": {
                 "next": {"$recursiveRef": "#"}}}}},
            [{"next": {"v": "a"}}],
            [{"next": {"v": 1}}],
        ),
        ({"properties": {"steps": {"contains": {"const": 1}}}, "steps": [3], "fraction": [1]},
         [{"steps": [1]}], [{"steps": []}]),
        ({"format": "json-pointer"}, ["/a/b", ""], ["a"]),
        ({"$id": "http://x/a.json", "$defs": {"s": {"$id": "s.json", "type": "string"}},
          "items": {"$ref": "s.json"}, "not": {"const": 7}}, [["a"], 8], [[1], 7]),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}},
             "properties": {"x": {"$ref": "#/definitions/a", "type": "string"}}},
            [{"x": 1}],
            [],
        ),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 2,
             "exclusiveMinimum": True, "not": {"type": "string"}},
            [3],
            [2, "a"],
        ),
    ],
)  # fmt: skip
def test_a_schema_is_enforced(
    grammars: Grammars, schema: Any, valid: list[Any], invalid: list[Any]
) -> None:
    judge = Judge(schema, grammars)
    assert [value for value in valid if judge.allowed(value) is None] == []
    assert [value for value in invalid if judge.allowed(value) is not None] == []


WORDS = keyword.kwlist


def _in_any_case(word: str) -> str:
    return "".join(f"[{each.lower()}{each.upper()}]" for each in word)


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (
            {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$",
             "allOf": [{"not": {"pattern": f"^{_in_any_case(word)}$"}} for word in WORDS]},
            ["imports", "imp", "_"],
            ["import", "ImporT", "FALSE", "a b"],
        ),
        (
            {"allOf": [{"type": "object", "required": ["type"]}],
             "oneOf": [
                 {"properties": {"type": {"not": {"enum": [*WORDS, *map("{}T".format, WORDS)]}}}},
                 {"oneOf": [
                     {"properties": {word: {"type": "string"}, "path": {"type": "string"}},
                      "oneOf": [
                         {"properties": {"type": {"const": word}, "way": {"const": "in"}}},
                         {"properties": {"type": {"const": f"{word}T"}, "way": {"const": "out"}}},
                      ]} for word in WORDS[:13]
                 ]},
             ]},
            [{"type": "and", "way": "in", "path": "a"}, {"type": "other", "way": 7}],
            [{"type": "and", "way": "out"}, {"type": "and", "path": 1}, {"path": "a"}],
        ),
    ],
    ids=["patterns under not", "choices in choices"],
)  # fmt: skip
def test_a_schema_with_many_alternatives_is_enforced(
    grammars: Grammars, schema: Any, valid: list[Any], invalid: list[Any]
) -> None:
    judge = Judge(schema, grammars)
    assert [value for value in valid if judge.allowed(value) is None] == []
    assert [value for value in invalid if judge.allowed(value) is not None] == []


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            {"allOf": [{"not": {"additionalProperties": {"minimum": n}}} for n in range(11)]},
            r"p\.allOf.*: `additionalProperties` so often under `not`",
        ),
        (
            {"properties": {"x": {"contains": {"const": 1}, "minContains": 300}}},
            r"p\.properties\.x: `contains` with so many",
        ),
        ({"type": "number", "not": {"type": "integer"}, "minimum": 0.5}, "p: numbers that are no"),
        ({"items": {"not": {"format": "uri"}}}, r"p\.items: `format` under `not`"),
        ({"$ref": "http://x/y.json"}, r"p: `\$ref` to http://x/y.json, which is not in the schema"),
        ({"allOf": [{"$ref": "#/nowhere"}]}, r"p\.allOf\.0: `\$ref`: there is no /nowhere"),
        ({"not": {"pattern": r"(a)\1"}}, r"`pattern` with \\1"),
        ({"properties": {"x": 3}}, r"p\.properties\.x: a schema must be"),
        ({"minLength": "2"}, "p: `minLength` must be a whole number"),
        ({"not": {}}, "p: nothing can match"),
        (
            {"allOf": [{"oneOf": [{"required": [f"{i}{j}"]} for j in range(9)]} for i in range(9)]},
            "p: the schema has too many alternatives",
        ),
    ],
)
def test_what_cannot_be_enforced_is_named_with_its_place(schema: Any, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        rewritten(schema, "p")


FORMAT_TEXTS = ["2020-02-29", "2020-02-30", "2021-04-31", "0000-12-31", "2020-1-01", "20:59:60Z",
                "24:00:00Z", "01:02:03.5+23:59", "01:02:03", "01:02:03.z", "2020-02-29t01:02:03z",
                "2020-02-29 01:02:03Z", "2020-13-01T01:02:03Z", "1.2.3.4", "255.249.199.99",
                "256.1.1.1", "01.2.3.4", "1.2.3", "ed7ba470-8E54-465e-825c-99712043e01c",
                "ed7ba4708e54465e825c99712043e01c", ""]  # fmt: skip


@pytest.mark.parametrize("name", ["date", "time", "date-time", "ipv4", "uuid"])
def test_what_has_a_format_is_what_has_it_not_under_not(grammars: Grammars, name: str) -> None:
    direct = Judge({"type": "string", "format": name}, grammars)
    opposite = Judge({"type": "string", "not": {"format": name}}, grammars)
    allowed = [text for text in FORMAT_TEXTS if direct.allowed(text)]
    assert allowed
    assert [text for text in FORMAT_TEXTS if not opposite.allowed(text)] == allowed


names = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    st.sampled_from([None, True, 0, 1, 5, 1.5, "", "a", "ab"]),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=2)),
    max_leaves=4,
)
leaves = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"const": "a"}, {"enum": [1, "ab", None]}, True,
     {"minLength": 1}, {"minimum": 1, "type": "integer"}, {"pattern": "b$"}, {"required": ["a"]}]
)  # fmt: skip
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda *parts: {"anyOf": list(parts)}, inner, inner),
        st.builds(lambda *parts: {"allOf": list(parts)}, inner, inner),
        st.builds(lambda *parts: {"oneOf": list(parts)}, inner, inner),
        st.builds(lambda part: {"not": part}, inner),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
        st.builds(lambda part: {"properties": {"a": part}, "minProperties": 1}, inner),
        st.builds(lambda part: {"properties": {"b": part}, "additionalProperties": False}, inner),
        st.builds(lambda part: {"items": part, "maxItems": 2}, inner),
        st.builds(lambda part: {"contains": part}, inner),
        st.builds(lambda part: {"contains": part, "minContains": 2, "maxContains": 2}, inner),
        st.builds(lambda a, b: {"items": a, "contains": b, "maxContains": 1}, inner, inner),
        st.builds(lambda name: {"dependentRequired": {"a": [name]}}, names),
        st.builds(lambda name: {"propertyNames": {"enum": ["a", name]}}, names),
    ),
    max_leaves=4,
)


@examples(50)
@given(schemas, st.lists(values, min_size=1, max_size=4))
def test_every_schema_that_is_taken_has_the_values_that_jsonschema_says(
    schema: Any, tried: list[Any]
) -> None:
    try:
        judge = Judge(schema, _shared())
    except InvalidRequest:  # it says what is not supported
        assume(False)
    validator = jsonschema.Draft202012Validator(schema)
    for value in tried:
        assert (judge.allowed(value) is not None) == validator.is_valid(value), json.dumps(schema)


_known: list[Grammars] = []


def _shared() -> Grammars:
    if not _known:
        _known.append(byte_grammars())
    return _known[0]
