"""hearth login: a name and a password for a registry."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cli.errors import USAGE, CliError
from cli.terminal import is_terminal


def command(
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="A registry, such as registry.example.com")
    ],
    username: Annotated[
        str | None, typer.Option("--username", "-u", metavar="NAME", help="Who you are there")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from a pipe")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plain http and unknown certificates")
    ] = False,
) -> None:
    """Keep a name and a password for a registry, after it has accepted them.

    Those of `docker login` are used without this.
    """
    from cli.connection import connect

    name, password = ask(username, password_stdin)
    with connect() as client:
        client.login(host, name, password, insecure)
    print(f"logged in to {host} as {name}")


def ask(username: str | None, password_stdin: bool) -> tuple[str, str]:
    """The name and the password, from the options and the person. Raises Failure."""
    if password_stdin:
        if username is None:
            raise CliError("--password-stdin needs --username", USAGE)
        return username, sys.stdin.readline().rstrip("\r\n")
    if not is_terminal(sys.stdin):
        raise CliError("there is nobody to ask: use --username and --password-stdin", USAGE)
    from getpass import getpass

    name = username if username is not None else input("Username: ")
    return name, getpass("Password: ")
