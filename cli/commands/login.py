"""hearth login: Store a user name and password for a registry."""

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
        str | None, typer.Option("--username", "-u", metavar="NAME", help="Your user name there")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from stdin")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plain HTTP and untrusted certificates")
    ] = False,
) -> None:
    """Store a user name and password for a registry after verifying them there.

    Credentials from `docker login` are used automatically.
    """
    from cli.connection import connect

    name, password = ask(username, password_stdin)
    connect().login(host, name, password, insecure)
    print(f"logged in to {host} as {name}")


def ask(username: str | None, password_stdin: bool) -> tuple[str, str]:
    """The name and the password, from the options and the person. Raises CliError."""
    if password_stdin:
        if username is None:
            raise CliError("--password-stdin needs --username", USAGE)
        return username, sys.stdin.readline().rstrip("\r\n")
    if not is_terminal(sys.stdin):
        raise CliError("stdin is not a terminal: use --username and --password-stdin", USAGE)
    from getpass import getpass

    name = username if username is not None else input("Username: ")
    return name, getpass("Password: ")
