"""The fields that constrain an answer: OpenAI's response_format, and those of vLLM and
llama.cpp."""

from __future__ import annotations

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


_FIELDS: Mapping[str, Make] = {
    "json_schema": json_schema_grammar,
    "grammar": _grammar,
    "guided_json": json_schema_grammar,
    "guided_regex": _regex,
    "guided_choice": choice_grammar,
    "guided_grammar": _grammar,
}
_STRUCTURED: Mapping[str, Make] = {
    "json": json_schema_grammar,
    "regex": _regex,
    "choice": choice_grammar,
    "grammar": _grammar,
    "json_object": _object,
}


def grammar_of(fields: Mapping[str, Any]) -> Grammar | None:
    """The grammar that a request's fields describe; None: any text. Raises InvalidRequest,
    Unsupported."""
    found = {
        name: make(fields[name], name)
        for name, make in _FIELDS.items()
        if fields.get(name) is not None
    }
    response_format, structured = fields.get("response_format"), fields.get("structured_outputs")
    if response_format is not None:
        grammar = _of_format(response_format)
        found |= {} if grammar is None else {"response_format": grammar}
    if structured is not None:
        grammar = _of_structured(structured)
        found |= {} if grammar is None else {"structured_outputs": grammar}
    return single_grammar(found)


def _of_format(value: Any) -> Grammar | None:
    where = "response_format"
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
        given = value.get("json_schema")
        if not isinstance(given, dict) or given.get("schema") is None:
            path = f"{where}.json_schema.schema"
            raise InvalidRequest(f"{path} is missing", param=path)
        return json_schema_grammar(given["schema"], f"{where}.json_schema.schema")
    raise Unsupported(
        f'{where}.type must be "text", "json_object" or "json_schema" (got {str(kind)[:40]!r})',
        param=f"{where}.type",
    )


def _of_structured(value: Any) -> Grammar | None:
    where = "structured_outputs"
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
