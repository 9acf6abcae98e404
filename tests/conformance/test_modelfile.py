"""Ollama's cases for Modelfiles."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from modelfile.description import from_modelfile
from modelfile.errors import ParseError
from modelfile.parser import decode, parse
from modelfile.render import render
from registry.names import Name
from tests.conformance.vectors import rows

ROWS = rows("modelfile.jsonl")


# What a request holds when the weights are not files; those are the client's work.
_DESCRIBED = {"from", "license", "parameters", "messages"}


def _with(key: str) -> list[Any]:
    found = [r for r in ROWS if key in r]
    if key == "request":
        found = [r for r in found if set(r["request"]) <= _DESCRIBED]
    return [pytest.param(r, id=r["name"]) for r in found] or [
        pytest.param(None, marks=pytest.mark.skip("no shared vectors here"))
    ]


def _text(row: dict[str, Any]) -> str:
    return decode(row["text"].encode() if "text" in row else base64.b64decode(row["base64_utf16"]))


@pytest.mark.parametrize("row", _with("commands"))
def test_text_parses_to_the_same_commands(row: dict[str, Any]) -> None:
    commands = parse(_text(row)).commands
    assert [{"name": c.name, "args": c.args} for c in commands] == row["commands"]


@pytest.mark.parametrize("row", _with("commands"))
def test_rendered_text_parses_to_the_same_commands(row: dict[str, Any]) -> None:
    modelfile = parse(_text(row))
    assert parse(render(modelfile)) == modelfile


@pytest.mark.parametrize("row", _with("serialised"))
def test_text_is_rendered_as_ollama_writes_it(row: dict[str, Any]) -> None:
    assert render(parse(_text(row))) == row["serialised"]


@pytest.mark.parametrize("row", _with("error"))
def test_faulty_text_is_refused_with_the_reason_and_the_line(row: dict[str, Any]) -> None:
    with pytest.raises(ParseError) as caught:
        parse(_text(row))
    assert row["error"] in caught.value.message
    assert caught.value.line == row.get("error_line", caught.value.line)


@pytest.mark.parametrize("row", _with("request"))
def test_a_modelfile_of_an_installed_model_describes_the_same_request(row: dict[str, Any]) -> None:
    wanted = row["request"]
    described = from_modelfile(parse(_text(row)), Name.parse("x"))
    messages = [{"role": m.role, "content": m.content} for m in described.messages or ()]
    assert described.from_model == Name.parse(wanted["from"])
    assert list(described.licenses) == wanted.get("license", [])
    assert dict(described.parameters) == wanted.get("parameters", {})
    assert messages == wanted.get("messages", [])
