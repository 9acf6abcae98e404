"""hearth push: Upload a model to a registry."""

from __future__ import annotations

import click

from cli.completion import installed_models


@click.command()
@click.argument(
    "name",
    shell_complete=installed_models,
    help="An installed model named after its destination: host/namespace/model:tag",
)
@click.option("--insecure", is_flag=True, help="Allow plain HTTP and untrusted certificates")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors")
def command(name: str, insecure: bool, as_json: bool, quiet: bool) -> None:
    """Upload a model to the registry that its name begins with.

    Use `hearth cp` to give it that name."""
    from cli.connection import connect
    from cli.progress import follow, style_for

    style = style_for(as_json, quiet)
    client = connect()
    follow(client.push(name, insecure), style)
    if style not in ("json", "quiet"):
        print(f"pushed '{name}'")
