"""hearth stop: Unload a model from memory."""

from __future__ import annotations

import click

from cli.completion import loaded_models


@click.command()
@click.argument("model", shell_complete=loaded_models, help="Name of a loaded model")
def command(model: str) -> None:
    """Unload a model from memory. It stays installed."""
    from cli.connection import connect

    client = connect()
    client.unload(model)
