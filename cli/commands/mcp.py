"""hearth mcp: List MCP servers and their tools, or run one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.errors import USAGE, CliError
from cli.terminal import status

if TYPE_CHECKING:
    from runner.client import Client

_DESCRIPTION_CHARS = 60


def command(
    action: Annotated[
        Literal["list", "tools", "serve"],
        typer.Argument(metavar="[list|tools|serve]", help="What to do"),
    ] = "list",
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Servers, for tools")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """List MCP servers and their tools, or run one.

    The servers are defined in mcp.json in hearth's configuration folder, in the format that other
    programs use: {"mcpServers": {"NAME": {"command": "...", "args": []}}}. `hearth run MODEL --mcp
    NAME` lets a model call their tools.

    serve is an MCP server over stdin and stdout: programs that start `hearth mcp serve` can list
    models, generate answers and get embeddings.
    """
    from cli.connection import connect

    if names and action != "tools":
        raise CliError(f"hearth mcp {action} takes no names", USAGE)
    client = connect()
    if action == "serve":
        from cli.mcp_server import serve

        serve(client)
    elif action == "list":
        _list(client, as_json)
    else:
        _tools(client, names or [], as_json)


def _list(client: Client, as_json: bool) -> None:
    from cli.render import print_json, print_table

    found = client.mcp_servers()
    if as_json:
        print_json(found)
        return
    rows = [(entry["name"], entry["transport"], "yes" if entry["running"] else "no")
            for entry in found["servers"]]  # fmt: skip
    print_table(("NAME", "TRANSPORT", "RUNNING"), rows)
    if not rows:
        status(f"no MCP servers in {found['path']}")


def _tools(client: Client, names: list[str], as_json: bool) -> None:
    from cli.render import print_json, print_table

    found = client.mcp_servers()
    wanted = names or [entry["name"] for entry in found["servers"]]
    if not wanted:
        raise CliError(f"no MCP servers in {found['path']}")
    offered = client.mcp_tools(wanted)
    if as_json:
        print_json(offered)
        return
    rows = [
        (
            tool["server"],
            tool["name"],
            "yes" if tool["asks"] else "no",
            " ".join(tool["description"].split())[:_DESCRIPTION_CHARS],
        )
        for tool in offered["tools"]
    ]
    print_table(("SERVER", "TOOL", "ASKS", "DESCRIPTION"), rows)
    for problem in offered["problems"]:
        status(f"({problem})")
