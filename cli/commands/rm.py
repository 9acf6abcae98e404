"""hearth rm: Remove models."""

from __future__ import annotations

import typer

from cli.completion import InstalledModels
from cli.errors import OK, report


def command(
    models: InstalledModels,
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
