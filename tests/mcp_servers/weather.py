"""An MCP server with one tool, as people have them: `python -m tests.mcp_servers.weather`."""

from __future__ import annotations

from mcp.server import MCPServer

server = MCPServer("weather")


@server.tool()
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return "8 degrees, rain" if city == "Oslo" else "21 degrees, sunny"


if __name__ == "__main__":
    server.run()
