"""hearth stop: take a model out of memory."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of a model in memory")],
) -> None:
    """Take a model out of memory. The model stays installed."""
    from cli.connection import connect

    with connect() as client:
        client.unload(model)
