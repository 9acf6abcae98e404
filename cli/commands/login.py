"""hearth login: Store a user name and password for a registry."""

from __future__ import annotations

import sys

import click

from cli.errors import USAGE, CliError
from cli.terminal import is_terminal


@click.command()
@click.argument("host", help="A registry, such as registry.example.com")
@click.option("--username", "-u", metavar="NAME", help="Your user name there")
@click.option("--password-stdin", is_flag=True, help="Read the password from stdin")
@click.option("--insecure", is_flag=True, help="Allow plain HTTP and untrusted certificates")
def command(host: str, username: str | None, password_stdin: bool, insecure: bool) -> None:
    """Store a user name and password for a registry after verifying them there.

    Credentials from `docker login` are used automatically.
    """
    from cli.connection import connect

    name, password = ask(username, password_stdin)
    client = connect()
    client.login(host, name, password, insecure)
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
