"""hearth check: Check a Modelfile without building it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import ERROR, CliError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelfile.ast import Modelfile
    from modelfile.errors import ModelfileError


def command(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The Modelfile; - reads it from stdin")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the commands, or the error, as JSON")
    ] = False,
) -> None:
    """Check a Modelfile without building it.

    Exit code 1: the file is not a valid Modelfile. Valid syntax that create would reject, such as
    an unknown parameter, is a warning on stderr.
    """
    from modelfile.errors import ModelfileError
    from modelfile.parser import decode, parse

    content = _content(file)
    try:
        text = decode(content)
    except ModelfileError as error:
        raise typer.Exit(_refused(file, "", error, as_json)) from None
    try:
        modelfile = parse(text)
    except ModelfileError as error:
        raise typer.Exit(_refused(file, text, error, as_json)) from None
    for warning in warnings(modelfile):
        print(f"{file}: {warning}", file=sys.stderr)
    _accepted(file, modelfile, as_json)


def _content(file: str) -> bytes:
    from cli.sources import require_file
    from modelfile.parser import MAX_BYTES

    if file == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    path = Path(file)
    try:
        require_file(path)
    except FileNotFoundError:
        raise CliError(f"{file} does not exist") from None
    with path.open("rb") as content:
        return content.read(MAX_BYTES + 1)


def warnings(modelfile: Modelfile) -> Iterator[str]:
    """What create would refuse or ignore, with line and column."""
    from modelfile.errors import ModelfileError
    from modelfile.parameters import parse_value, warning

    for parameter in modelfile.parameters:
        place = f"line {parameter.line}, column {parameter.column}"
        try:
            parse_value(parameter.name, parameter.value)
        except ModelfileError as error:
            yield f"{place}: {error.message}"
            continue
        if note := warning(parameter.name):
            yield f"{place}: {note}"
    for each in modelfile.commands:
        if fault := _fault(each.instruction, each.value):
            yield f"line {each.line}, column {each.column}: {fault}"


def _fault(instruction: str, value: str) -> str | None:
    """What create would say of a template or of the name of a notation; None: nothing."""
    from modelfile.errors import ModelfileError
    from modelfile.families import unknown_name

    if instruction in ("renderer", "parser"):
        return unknown_name(instruction, value)
    if instruction != "template":
        return None
    from modelfile.templates.trial import check_template

    try:
        check_template(value)
    except ModelfileError as error:
        return f"TEMPLATE: {error.message}"
    return None


def _accepted(file: str, modelfile: Modelfile, as_json: bool) -> None:
    if as_json:
        from cli.render import print_json

        commands = [{"name": each.name, "args": each.args} for each in modelfile.commands]
        print_json({"commands": commands})
        return
    count = len(modelfile.commands)
    print(f"{file}: {count} command{'' if count == 1 else 's'}, no errors")


def _refused(file: str, text: str, error: ModelfileError, as_json: bool) -> int:
    line: int | None = getattr(error, "line", None)
    column: int | None = getattr(error, "column", None)
    if as_json:
        from cli.render import print_json

        body: dict[str, Any] = {"error": error.message, "line": line, "column": column}
        print_json(body)
        return ERROR
    print(f"{file}: {error.message}", file=sys.stderr)
    lines = text.splitlines()
    if line is not None and column is not None and line <= len(lines):
        _point(lines[line - 1], column)
    return ERROR


def _point(line: str, column: int, width: int = 100) -> None:
    """Show the part of the line around the column, and a mark under it."""
    start = max(0, column - 1 - width // 2)
    shown = line[start : start + width].replace("\t", " ")
    printable = "".join(char if char.isprintable() else "?" for char in shown)
    print(f"  {printable}\n  {' ' * (column - 1 - start)}^", file=sys.stderr)
