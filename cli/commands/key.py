"""hearth key: Create, list and remove API keys."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from cli.errors import USAGE, CliError
from cli.terminal import status

if TYPE_CHECKING:
    from runner.client import Client

_HEADER = ("NAME", "SCOPES", "CREATED")


@click.command()
@click.argument(
    "action", type=click.Choice(("add", "list", "rm")), default="list", help="What to do"
)
@click.argument("name", default="", help="The key's name")
@click.option(
    "scopes",
    "--scope",
    "-s",
    multiple=True,
    type=click.Choice(("inference", "pull", "admin")),
    help="What the key allows; inference by default",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def command(action: str, name: str, scopes: tuple[str, ...], as_json: bool) -> None:
    """Create, list and remove API keys.

    Once a key exists, the daemon requires one from every client except the commands of the user
    who started it. A key is shown only when it is created. --scope may be repeated.
    """
    from cli.connection import connect

    if action != "list" and not name:
        raise CliError(f"hearth key {action} needs the name of a key", USAGE)
    client = connect()
    if action == "list":
        _list(client, as_json)
    elif action == "add":
        _add(client, name, scopes, as_json)
    else:
        client.remove_key(name)
        print(f"removed '{name}'")


def _add(client: Client, name: str, scopes: tuple[str, ...], as_json: bool) -> None:
    from cli.render import print_json

    first = not client.keys()
    created = client.add_key(name, scopes or ("inference",))
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
