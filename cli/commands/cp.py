"""hearth cp: a second name for a model."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.completion import installed_models


def command(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Name of a model", autocompletion=installed_models),
    ],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="The new name")],
) -> None:
    """Give a model a second name. Takes no room: the files are shared."""
    from cli.connection import connect

    with connect() as client:
        client.copy(source, destination)
    print(f"copied '{source}' to '{destination}'")
