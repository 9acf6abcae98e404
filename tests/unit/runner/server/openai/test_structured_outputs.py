from __future__ import annotations

import json
from typing import Any

import pytest

from runner.errors import HearthError
from runner.server.openai.structured_outputs import grammar_of
from runner.types import Grammar

SCHEMA = {"type": "string"}
TEXT = json.dumps(SCHEMA)


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({}, None),
        ({"response_format": None, "grammar": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"structured_outputs": {"json": None, "json_object": False}}, None),
        (
            {"response_format": {"type": "json_object"}},
            Grammar("json_schema", '{"type":"object"}', "response_format"),
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            Grammar("json_schema", TEXT, "response_format.json_schema.schema"),
        ),
        ({"json_schema": SCHEMA}, Grammar("json_schema", TEXT, "json_schema")),
        ({"guided_json": TEXT}, Grammar("json_schema", TEXT, "guided_json")),
        ({"guided_regex": "a+"}, Grammar("regex", "a+", "guided_regex")),
        ({"guided_choice": ["é"]}, Grammar("choice", '["é"]', "guided_choice")),
        ({"guided_grammar": "root ::= x"}, Grammar("gbnf", "root ::= x", "guided_grammar")),
        ({"grammar": "start: x"}, Grammar("gbnf", "start: x", "grammar")),
        (
            {"structured_outputs": {"regex": "a"}},
            Grammar("regex", "a", "structured_outputs.regex"),
        ),
    ],
)
def test_each_field_becomes_its_grammar(fields: dict[str, Any], grammar: Grammar | None) -> None:
    assert grammar_of(fields) == grammar


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json"}, "response_format.type"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}},
         "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}},
         "response_format.json_schema.schema"),
        ({"guided_json": 3}, "guided_json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_choice": "ab"}, "guided_choice"),
        ({"grammar": ["x"]}, "grammar"),
        ({"guided_regex": "a" * 600_000}, "guided_regex"),
        ({"structured_outputs": []}, "structured_outputs"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"tag": 1}}, "structured_outputs.tag"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs.json"),
        ({"grammar": "a", "guided_regex": "a"}, "grammar"),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_shape_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(HearthError) as refusal:
        grammar_of(fields)
    assert refusal.value.details["param"] == param
    assert param in refusal.value.message
