"""hearth cache: List and remove saved prompts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from cli.completion import installed_models
from cli.errors import USAGE, CliError

_HEADER = ("NAME", "TOKENS", "SIZE", "USED")


def command(
    action: Annotated[
        Literal["list", "clear", "size"],
        typer.Argument(metavar="[list|clear|size]", help="What to do"),
    ] = "list",
    model: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL]",
            autocompletion=installed_models,
            help="With clear: only prompts of this model",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """List and remove saved prompts.

    Computed prompts are saved to the disk, so that a conversation can continue without computing
    them again. HEARTH_CACHE_SIZE limits their size; 0 switches this off.
    """
    from cli.connection import connect
    from cli.render import ago, print_json, print_table, size

    if model and action != "clear":
        raise CliError(f"hearth cache {action} takes no model", USAGE)
    client = connect()
    if action == "clear":
        removed = client.clear_cache(model or None)
        if as_json:
            print_json(removed)
        else:
            print(f"{size(removed['size'])} removed")
        return
    cache = client.cache()
    if as_json:
        print_json(cache)
    elif action == "size":
        print(f"{size(cache['size'])} of {size(cache['limit'])} in {cache['path']}")
    else:
        now = datetime.now(UTC)
        rows = [
            (entry["model"] or "(another daemon)", str(entry["tokens"]), size(entry["size"]),
             ago(entry["used_at"], now))
            for entry in cache["models"]
        ]  # fmt: skip
        print_table(_HEADER, rows)
