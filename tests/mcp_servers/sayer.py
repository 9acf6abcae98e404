"""An MCP server whose tool says what it is told: `python -m tests.mcp_servers.sayer`."""

from __future__ import annotations

from mcp.server import MCPServer

server = MCPServer("sayer")


@server.tool()
def say(text: str) -> str:
    """Say a text."""
    return text


if __name__ == "__main__":
    server.run()
