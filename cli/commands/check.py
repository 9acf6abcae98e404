"""hearth check: Check a Modelfile without building it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import ERROR, CliError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelfile.ast import Command, Modelfile
    from modelfile.check import Diagnostic

_SOURCES = ("from", "adapter", "draft")


def command(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The Modelfile; - reads it from stdin")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print commands, errors and notes as JSON")
    ] = False,
) -> None:
    """Check a Modelfile without building it.

    Finds everything that create would refuse: syntax, parameters and their values, templates, and
    missing files. The content of files is not checked. No daemon is needed; if one is running, it
    is asked whether the model in FROM is installed.

    The exit code is 1 if there are errors. What create would ignore or pull is only a note.
    """
    from cli.create_request import read_bytes
    from modelfile.ast import Modelfile
    from modelfile.errors import EncodingError, ParseError
    from modelfile.parser import decode, parse_all

    text, modelfile, mistakes = "", Modelfile(()), list[EncodingError | ParseError]()
    try:
        text = decode(read_bytes(Path(file)))
        modelfile, found = parse_all(text)
        mistakes += found
    except FileNotFoundError:
        raise CliError(f"{file} does not exist") from None
    except EncodingError as error:
        mistakes.append(error)
    errors = [_entry("error", mistake.message, mistake) for mistake in mistakes]
    notes: list[dict[str, Any]] = []
    for diagnostic in _diagnostics(modelfile, Path(file).parent):
        kind, entries = ("error", errors) if diagnostic.is_error else ("note", notes)
        entries.append(_entry(kind, str(diagnostic), diagnostic.command))
    errors.sort(key=lambda entry: (entry["line"] or 0, entry["column"] or 0))
    if as_json:
        from cli.render import print_json

        commands = [{"name": each.name, "args": each.args} for each in modelfile.commands]
        print_json({"commands": commands, "errors": errors, "notes": notes})
    else:
        _print(file, text.splitlines(), errors, notes)
    if errors:
        raise typer.Exit(ERROR)
    if not as_json:
        print(f"{file}: {_counted(len(modelfile.commands), 'command')}, no errors")


def _diagnostics(modelfile: Modelfile, folder: Path) -> Iterator[Diagnostic]:
    """What create would refuse or ignore. The names of a renderer and a parser that the model of
    FROM has too are good, known or not."""
    from cli.create_request import sources
    from modelfile.check import diagnostics

    inherited: dict[str, Any] = {}
    try:
        given = sources(modelfile, folder)
    except CliError as error:
        yield from _of_sources(modelfile, folder, error)
    else:
        names = {"from": given.name, "draft": given.draft_name}
        for command in modelfile.commands:
            if command.value == names.get(command.instruction):
                shown, notes = _ask_daemon(command)
                inherited = shown if command.instruction == "from" else inherited
                yield from notes
    for diagnostic in diagnostics(modelfile):
        if diagnostic.command.value != inherited.get(diagnostic.command.instruction):
            yield diagnostic


def _of_sources(modelfile: Modelfile, folder: Path, error: CliError) -> Iterator[Diagnostic]:
    """error at the command that it is about; then at most one for every other command."""
    from cli.sources import find
    from modelfile.check import Diagnostic

    given = [each for each in modelfile.commands if each.instruction in _SOURCES]
    faults = {}
    for command in given:
        try:
            find(command.value, folder, command.instruction.upper())
        except CliError as fault:
            faults[command] = fault.message
    if given and not faults:
        faults[given[-1]] = error.message  # two models, or the model as its own draft
    yield from (Diagnostic(command, message) for command, message in faults.items())


def _ask_daemon(command: Command) -> tuple[dict[str, Any], list[Diagnostic]]:
    """What a daemon that runs says of a model of FROM or DRAFT, and what to tell when it says
    nothing."""
    from cli.connection import connect
    from modelfile.check import Diagnostic
    from runner.client import ClientError

    try:
        return connect(start=False).show(command.value), []
    except ClientError as error:
        if error.code == "model_not_found":
            message = f"{command.value} is not installed; hearth create pulls it first"
        else:
            message = f"not checked whether {command.value} is installed: {error.message}"
        return {}, [Diagnostic(command, message, is_error=False)]


def _entry(kind: str, message: str, place: Any) -> dict[str, Any]:
    """An error or a note as JSON has it. place: a command or an error with line and column."""
    return {kind: message, "line": place.line, "column": place.column}


def _print(
    file: str, lines: list[str], errors: list[dict[str, Any]], notes: list[dict[str, Any]]
) -> None:
    for entry in notes:
        print(f"{file}: {entry['note']}", file=sys.stderr)
    for entry in errors:
        print(f"{file}: {entry['error']}", file=sys.stderr)
        line, column = entry["line"], entry["column"]
        if line is not None and line <= len(lines):
            _point(lines[line - 1], column)
    if errors:
        print(f"{file}: {_counted(len(errors), 'error')}", file=sys.stderr)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _point(line: str, column: int, width: int = 100) -> None:
    """Show the part of the line around the column, and a mark under it."""
    start = max(0, column - 1 - width // 2)
    shown = line[start : start + width].replace("\t", " ")
    printable = "".join(char if char.isprintable() else "?" for char in shown)
    print(f"  {printable}\n  {' ' * (column - 1 - start)}^", file=sys.stderr)
