"""From the fields of a request to the grammar of its answers. Knows no wire format.

A grammar is checked and compiled by the worker; here only what would be too much to send is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runner.errors import InvalidRequest
from runner.types import Grammar, GrammarKind

MAX_TEXT_CHARS = 512 * 1024


def json_schema_grammar(schema: Any, param: str) -> Grammar:
    """The grammar of answers that match a JSON schema, an object or its text. Raises
    InvalidRequest."""
    if isinstance(schema, str):
        return _sized("json_schema", schema, param)
    if not isinstance(schema, dict | bool):
        raise InvalidRequest(f"{param}: a JSON schema must be an object", param=param)
    return _sized("json_schema", json.dumps(schema, ensure_ascii=False), param)


def json_object_grammar(param: str) -> Grammar:
    """The grammar of answers that are a JSON object."""
    return Grammar("json_schema", '{"type":"object"}', param)


def choice_grammar(choices: Any, param: str) -> Grammar:
    """The grammar of answers that are one of choices. Raises InvalidRequest."""
    if not isinstance(choices, Sequence) or isinstance(choices, str):
        raise InvalidRequest(f"{param}: choices must be a list of strings", param=param)
    return _sized("choice", json.dumps(choices, ensure_ascii=False), param)


def text_grammar(kind: GrammarKind, text: Any, param: str) -> Grammar:
    """The grammar that text writes. Raises InvalidRequest."""
    if not isinstance(text, str) or not text:
        raise InvalidRequest(f"{param}: must be a non-empty string", param=param)
    return _sized(kind, text, param)


def single_grammar(found: Mapping[str, Grammar]) -> Grammar | None:
    """The grammar, of those by the names of their fields. Raises InvalidRequest for several."""
    if len(found) > 1:
        names = ", ".join(found)
        raise InvalidRequest(f"{names} cannot be combined; use only one", param=next(iter(found)))
    return next(iter(found.values()), None)


def _sized(kind: GrammarKind, text: str, param: str) -> Grammar:
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidRequest(
            f"{param}: it has {len(text)} characters; the maximum is {MAX_TEXT_CHARS}",
            param=param,
        )
    return Grammar(kind, text, param)
