"""hearth parameters: List the parameters of models and requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.completion import parameters
from cli.errors import USAGE, CliError

if TYPE_CHECKING:
    from modelfile.parameters import Parameter


def command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", autocompletion=parameters, help="Only this parameter"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """List the parameters of models and requests.

    Set them in a Modelfile (PARAMETER NAME VALUE), in a chat (/set parameter NAME VALUE) or in the
    options of a request.
    """
    from modelfile.errors import ParameterError
    from modelfile.parameters import PARAMETERS, lookup

    try:
        one = None if name is None else lookup(name)
    except ParameterError as error:
        raise CliError(error.message, USAGE) from None
    if name is not None and one is None:
        raise CliError(f"parameter {name} is deprecated and has no effect", USAGE)
    rows = list(PARAMETERS.values()) if one is None else [one]
    if as_json:
        from cli.render import print_json

        print_json({"parameters": [described(row) for row in rows]})
    else:
        _print_table(rows)


def described(row: Parameter) -> dict[str, Any]:
    """A row of the table as JSON values."""
    from modelfile.parameters import expected

    default = list(row.default) if isinstance(row.default, tuple) else row.default
    return {
        "name": row.name,
        "type": row.kind,
        "default": default,
        "minimum": None if row.repeats else row.minimum,
        "maximum": None if row.repeats else row.maximum,
        "choices": list(row.choices),
        "repeats": row.repeats,
        "reloads": row.load,
        "takes": expected(row),
        "meaning": row.doc,
    }


def _print_table(rows: list[Parameter]) -> None:
    from cli.render import print_table
    from modelfile.parameters import expected

    cells = [(row.name, written_default(row), row.doc, expected(row)) for row in rows]
    print_table(("NAME", "DEFAULT", "MEANING", "ACCEPTS"), cells)


def written_default(row: Parameter) -> str:
    """The row's default for people."""
    if row.default is None:
        return "(automatic)"
    if isinstance(row.default, tuple):
        return " ".join(repr(text)[1:-1] for text in row.default) or "(none)"
    return str(row.default).lower() if isinstance(row.default, bool) else str(row.default)
