"""hearth rm: Remove models."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.completion import installed_models
from cli.errors import OK, report


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", autocompletion=installed_models, help="Names of installed models"
        ),
    ],
) -> None:
    """Remove models. Files that other models use are kept."""
    from cli.connection import connect
    from runner.client import ClientError

    worst = OK
    client = connect()
    for model in models:
        try:
            client.delete(model)
        except ClientError as error:
            worst = max(worst, report(error))
        else:
            print(f"deleted '{model}'")
    if worst != OK:
        raise typer.Exit(worst)
