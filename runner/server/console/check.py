"""POST /api/check: a Modelfile from an editor, with all that is wrong with it at its place.

The files that FROM, ADAPTER and DRAFT name are those that the client has uploaded; none of this
machine is looked at.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from modelfile.ast import Command, Modelfile
from modelfile.check import Diagnostic, diagnostics
from modelfile.description import create_fields
from modelfile.errors import ParseError
from modelfile.parser import parse_all
from runner.errors import InvalidRequest, ModelInvalid, ModelNotFound
from runner.leaf_errors import RegistryError
from runner.library.library import Library
from runner.library.pull import reference_of
from runner.server.console.answers import Finding, ModelfileResponse
from runner.server.http_request import HttpRequest
from runner.server.request_body import WireModel
from runner.server.routes import route

_MAX_CHARS = 1024 * 1024
_FIELDS = {"from": "files", "adapter": "adapters", "draft": "draft_files"}
_PART = re.compile(r"(.+)-\d{5}-of-(\d{5}\.gguf)", re.ASCII | re.IGNORECASE)


class ModelfileRequest(WireModel):
    """POST /api/check. files: digests of uploaded files by the names that the Modelfile gives them,
    with or without ./ before them."""

    modelfile: str = Field(max_length=_MAX_CHARS)
    files: dict[str, str] = Field(default_factory=dict, max_length=4096)


@route("POST", "/api/check")
async def check(http: HttpRequest, body: ModelfileRequest) -> ModelfileResponse:
    """Check a Modelfile and convert it to the body of /api/create."""
    return await asyncio.to_thread(_check, http.services.library, body.modelfile, body.files)


def _check(library: Library, text: str, files: Mapping[str, str]) -> ModelfileResponse:
    modelfile, mistakes = parse_all(text)
    found = [*diagnostics(modelfile), *_of_sources(library, modelfile, files)]
    wrong = [each for each in found if each.is_error]
    errors = [*map(_mistake, mistakes), *map(_finding, wrong)]
    errors.sort(key=lambda each: (each["line"] or 0, each["column"] or 0))
    return {
        "errors": errors,
        "notes": [_finding(each) for each in found if not each.is_error],
        "request": None if errors else create_fields(modelfile) | _sources(modelfile, files),
    }


def _mistake(error: ParseError) -> Finding:
    return {"message": error.reason, "line": error.line, "column": error.column}


def _finding(of: Diagnostic) -> Finding:
    return {"message": of.message, "line": of.command.line, "column": of.command.column}


def _of_sources(
    library: Library, modelfile: Modelfile, files: Mapping[str, str]
) -> Iterator[Diagnostic]:
    names = [each for each in modelfile.commands if each.instruction in _FIELDS]
    models = [
        each for each in names if each.instruction == "from" and not _named(each.value, files)
    ]
    yield from (
        Diagnostic(each, "a second FROM must name the file of the model's multimodal projector")
        for each in models[1:]
    )
    for command in names:
        if not _named(command.value, files):
            yield from _of_name(library, command)


def _of_name(library: Library, command: Command) -> Iterator[Diagnostic]:
    """What is to be said of a model, or of a file that is not there."""
    if command.instruction == "adapter":
        yield Diagnostic(command, f"{command.value} is not among the added files")
        return
    try:
        library.find(command.value)
    except (ModelNotFound, InvalidRequest):
        try:
            reference_of(command.value, insecure=True)
        except (InvalidRequest, RegistryError):
            message = f"{command.value} is neither the name of a model nor among the added files"
            yield Diagnostic(command, message)
        else:
            message = f"{command.value} is not installed; creating the model pulls it first"
            yield Diagnostic(command, message, is_error=False)
    except ModelInvalid as error:
        yield Diagnostic(command, error.message)


def _sources(modelfile: Modelfile, files: Mapping[str, str]) -> dict[str, Any]:
    """The fields of FROM, ADAPTER and DRAFT."""
    fields: dict[str, Any] = {}
    for command in modelfile.commands:
        instruction = command.instruction
        if instruction not in _FIELDS:
            continue
        if found := _named(command.value, files):
            given = {} if instruction == "adapter" else fields.get(_FIELDS[instruction], {})
            fields[_FIELDS[instruction]] = {**given, **found}
        else:
            fields[instruction] = command.value
    return fields


def _named(value: str, files: Mapping[str, str]) -> dict[str, str]:
    """The files that value names: one, or all parts of a model that has several."""
    plain = {name.removeprefix("./"): digest for name, digest in files.items()}
    name = value.removeprefix("./")
    if name not in plain:
        return {}
    part = _PART.fullmatch(name)
    if part is None:
        return {name: plain[name]}
    parts = {each: _PART.fullmatch(each) for each in plain}
    return {
        each: plain[each]
        for each, found in parts.items()
        if found and found.groups() == part.groups()
    }
