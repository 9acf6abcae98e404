"""hearth push: a model to its registry."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.completion import installed_models


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An installed model, named after where it goes: host/namespace/model:tag",
            autocompletion=installed_models,
        ),
    ],
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plain http and unknown certificates")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show errors only")] = False,
) -> None:
    """Send a model to the registry that its name begins with. `hearth cp` gives it that name."""
    from cli.connection import connect
    from cli.progress import follow, style_for

    style = style_for(as_json, quiet)
    with connect() as client:
        follow(client.push(name, insecure), style)
    if style not in ("json", "quiet"):
        print(f"pushed '{name}'")
