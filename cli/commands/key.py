"""hearth key: the API keys of the daemon."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import USAGE, CliError
from cli.terminal import status

if TYPE_CHECKING:
    from runner.client import Client

SCOPES = ("inference", "pull", "admin")
_ACTIONS = ("add", "list", "rm")
_HEADER = ("NAME", "MAY", "CREATED")


def command(
    action: Annotated[str, typer.Argument(metavar="add|list|rm", help="What to do")] = "list",
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name")] = "",
    scope: Annotated[
        list[str],
        typer.Option("--scope", "-s", metavar="SCOPE", help="inference (default), pull or admin"),
    ] = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Make, list and remove API keys.

    Once there is a key, the daemon asks every client for one; commands of the user who started it
    need none. A key is shown when it is made and never again. --scope may be repeated.
    """
    from cli.connection import connect

    _check(action, name, scope)
    with connect() as client:
        if action == "list":
            _list(client, as_json)
        elif action == "add":
            _add(client, name, scope, as_json)
        else:
            client.remove_key(name)
            print(f"removed '{name}'")


def _check(action: str, name: str, scopes: list[str]) -> None:
    if action not in _ACTIONS:
        raise CliError(f"{action!r} is not one of {', '.join(_ACTIONS)}", USAGE)
    if action != "list" and not name:
        raise CliError(f"hearth key {action} needs the key's name", USAGE)
    for scope in scopes:
        if scope not in SCOPES:
            raise CliError(f"the scope {scope!r} is not one of {', '.join(SCOPES)}", USAGE)


def _add(client: Client, name: str, scopes: list[str], as_json: bool) -> None:
    from cli.render import print_json

    first = not client.keys()
    made = client.add_key(name, scopes or ["inference"])
    if as_json:
        print_json(made)
        return
    if first:
        status("from now on every client needs a key")
    print(made["key"])


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
