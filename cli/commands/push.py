"""hearth push: Upload a model to a registry."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.completion import installed_models


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            autocompletion=installed_models,
            help="An installed model named after its destination: host/namespace/model:tag",
        ),
    ],
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plain HTTP and untrusted certificates")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors")] = False,
) -> None:
    """Upload a model to the registry that its name begins with.

    Use `hearth cp` to give it that name."""
    from cli.connection import connect
    from cli.progress import follow, style_for

    style = style_for(as_json, quiet)
    follow(connect().push(name, insecure), style)
    if style not in ("json", "quiet"):
        print(f"pushed '{name}'")
