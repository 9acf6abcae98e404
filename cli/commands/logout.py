"""hearth logout: Forget the user name and password for a registry."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="A registry, such as registry.example.com")
    ],
) -> None:
    """Forget the credentials from `hearth login`. Those from `docker login` are kept."""
    from cli.connection import connect

    removed = connect().logout(host)
    print(f"logged out of {host}" if removed else f"was not logged in to {host}")
