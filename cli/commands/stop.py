"""hearth stop: Unload a model from memory."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.completion import loaded_models


def command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", autocompletion=loaded_models, help="Name of a loaded model"
        ),
    ],
) -> None:
    """Unload a model from memory. It stays installed."""
    from cli.connection import connect

    client = connect()
    client.unload(model)
