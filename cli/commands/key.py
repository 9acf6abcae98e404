"""hearth key: Create, list and remove API keys."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.completion import key_names
from cli.errors import USAGE, CliError
from cli.terminal import status

if TYPE_CHECKING:
    from runner.client import Client

_HEADER = ("NAME", "SCOPES", "CREATED")


class Scope(StrEnum):
    """What a key may allow."""

    INFERENCE = "inference"
    METRICS = "metrics"
    PULL = "pull"
    ADMIN = "admin"


def command(
    action: Annotated[
        Literal["add", "list", "rm"], typer.Argument(metavar="[add|list|rm]", help="What to do")
    ] = "list",
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", autocompletion=key_names, help="The key's name")
    ] = "",
    scopes: Annotated[
        list[Scope] | None,
        typer.Option(
            "--scope",
            "-s",
            metavar="inference|metrics|pull|admin",
            help="What the key allows; inference by default",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Create, list and remove API keys.

    Once a key exists, the daemon requires one from every client except the commands of the user
    who started it. A key is shown only when it is created. --scope may be repeated.
    """
    from cli.connection import connected_for_keys
    from runner.settings import load

    if action != "list" and not name:
        raise CliError(f"hearth key {action} needs the name of a key", USAGE)
    with connected_for_keys(load()) as client:
        if action == "list":
            _list(client, as_json)
        elif action == "add":
            _add(client, name, scopes or [Scope.INFERENCE], as_json)
        else:
            client.remove_key(name)
            print(f"removed '{name}'")


def _add(client: Client, name: str, scopes: list[Scope], as_json: bool) -> None:
    from cli.render import print_json

    first = not client.keys()
    created = client.add_key(name, scopes)
    if as_json:
        print_json(created)
        return
    if first:
        status("from now on the daemon requires a key from every client")
    print(created["key"])


def _list(client: Client, as_json: bool) -> None:
    from cli.render import ago, print_json, print_table

    keys = client.keys()
    if as_json:
        print_json({"keys": keys})
        return
    now = datetime.now(UTC)
    print_table(
        _HEADER,
        [(key["name"], ", ".join(key["scopes"]), ago(key["created_at"], now)) for key in keys],
    )
