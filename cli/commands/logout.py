"""hearth logout: forget the name and the password for a registry."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="A registry, such as registry.example.com")
    ],
) -> None:
    """Forget what `hearth login` kept. Those of `docker login` stay."""
    from cli.connection import connect

    with connect() as client:
        removed = client.logout(host)
    print(f"logged out of {host}" if removed else f"was not logged in to {host}")
