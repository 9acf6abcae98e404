"""The fields that constrain an answer: OpenAI's response_format, and those of vLLM and
llama.cpp."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from runner.errors import InvalidRequest, Unsupported
from runner.server.grammars import (
    choice_grammar,
    json_object_grammar,
    json_schema_grammar,
    single_grammar,
    text_grammar,
)
from runner.types import Grammar

Make = Callable[[Any, str], Grammar]


def _regex(value: Any, param: str) -> Grammar:
    return text_grammar("regex", value, param)


def _grammar(value: Any, param: str) -> Grammar:
    return text_grammar("gbnf", value, param)


def _object(value: Any, param: str) -> Grammar:
    if value is not True:
        raise InvalidRequest(f"{param}: only true is supported", param=param)
    return json_object_grammar(param)


_STRUCTURED: Mapping[str, Make] = {
    "json": json_schema_grammar,
    "regex": _regex,
    "choice": choice_grammar,
    "grammar": _grammar,
    "json_object": _object,
}


def format_grammar(value: Any, where: str, *schema_path: str) -> Grammar | None:
    """The grammar of a field that has text, json_object or json_schema as its type; None: any text.
    schema_path: the keys of the last one's schema. Raises InvalidRequest, Unsupported."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        schema = value.get("schema")  # as llama.cpp takes it
        return (
            json_object_grammar(where)
            if schema is None
            else json_schema_grammar(schema, f"{where}.schema")
        )
    if kind == "json_schema":
        path, schema = where, value
        for key in schema_path:
            path, schema = f"{path}.{key}", schema.get(key) if isinstance(schema, dict) else None
        if schema is None:
            raise InvalidRequest(f"{path} is missing", param=path)
        return json_schema_grammar(schema, path)
    raise Unsupported(
        f'{where}.type must be "text", "json_object" or "json_schema" (got {reprlib.repr(kind)})',
        param=f"{where}.type",
    )


def _response_format(value: Any, param: str) -> Grammar | None:
    return format_grammar(value, param, "json_schema", "schema")


def _structured_outputs(value: Any, where: str) -> Grammar | None:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{where}: must be an object", param=where)
    given = {name: item for name, item in value.items() if item is not None and item is not False}
    unknown = next((name for name in given if name not in _STRUCTURED), None)
    if unknown is not None:
        known = ", ".join(_STRUCTURED)
        path = f"{where}.{unknown[:40]}"
        raise Unsupported(f"{path} is not supported; supported: {known}", param=path)
    paths = {f"{where}.{name}": name for name in given}
    return single_grammar(
        {path: _STRUCTURED[name](given[name], path) for path, name in paths.items()}
    )


_FIELDS: Mapping[str, Callable[[Any, str], Grammar | None]] = {
    "json_schema": json_schema_grammar,
    "grammar": _grammar,
    **{f"guided_{name}": _STRUCTURED[name] for name in ("json", "regex", "choice", "grammar")},
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
}


def grammar_of(fields: Mapping[str, Any]) -> Grammar | None:
    """The grammar that a request's fields describe; None: any text. Raises InvalidRequest,
    Unsupported."""
    given = {name: fields[name] for name in _FIELDS if fields.get(name) is not None}
    made = {name: _FIELDS[name](value, name) for name, value in given.items()}
    return single_grammar({name: grammar for name, grammar in made.items() if grammar is not None})
