"""hearth rm: Remove models."""

from __future__ import annotations

import click

from cli.completion import installed_models
from cli.errors import OK, report


@click.command()
@click.argument(
    "models",
    metavar="MODEL...",
    nargs=-1,
    required=True,
    shell_complete=installed_models,
    help="Names of installed models",
)
def command(models: tuple[str, ...]) -> None:
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
        raise click.exceptions.Exit(worst)
