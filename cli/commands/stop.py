"""hearth stop: Unload a model from memory, or stop the daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.completion import loaded_models
from cli.errors import USAGE, CliError


def command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL]", autocompletion=loaded_models, help="Name of a loaded model"
        ),
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="Unload every model")] = False,
    daemon: Annotated[
        bool, typer.Option("--daemon", help="Stop the daemon, like hearth shutdown")
    ] = False,
) -> None:
    """Unload a model from memory. It stays installed."""
    from cli.commands.shutdown import command as shutdown
    from cli.connection import connect, new_client
    from cli.daemon import running
    from runner.settings import load

    if bool(model) + every + daemon != 1:
        raise CliError("give either the name of a loaded model, --all or --daemon", USAGE)
    if daemon:
        shutdown()
        return
    if model:
        connect().unload(model)
        return
    client = new_client(load())
    names = [] if running(client) is None else [loaded["name"] for loaded in client.ps()]
    for name in names:
        client.unload(name)
    print(f"unloaded {', '.join(names)}" if names else "no model is in memory")
