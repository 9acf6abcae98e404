"""hearth cp: Copy a model to a new name."""

from __future__ import annotations

import click

from cli.completion import installed_models


@click.command()
@click.argument("source", shell_complete=installed_models, help="Name of an installed model")
@click.argument("destination", help="The new name")
def command(source: str, destination: str) -> None:
    """Copy a model to a new name. It takes no disk space: both share their files."""
    from cli.connection import connect

    client = connect()
    client.copy(source, destination)
    print(f"copied '{source}' to '{destination}'")
