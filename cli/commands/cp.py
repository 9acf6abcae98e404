"""hearth cp: Copy a model to a new name."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.completion import installed_models


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", autocompletion=installed_models, help="Name of an installed model"
        ),
    ],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="The new name")],
) -> None:
    """Copy a model to a new name. It takes no disk space: both share their files."""
    from cli.connection import connect

    connect().copy(source, destination)
    print(f"copied '{source}' to '{destination}'")
