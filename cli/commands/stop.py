"""hearth stop: take a model out of memory."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.completion import loaded_models


def command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Name of a model in memory", autocompletion=loaded_models
        ),
    ],
) -> None:
    """Take a model out of memory. The model stays installed."""
    from cli.connection import connect

    with connect() as client:
        client.unload(model)
