"""GET /api/mcp, POST /api/mcp/tools, POST /api/mcp/{server}/call: the tools of MCP servers,
hearth's own routes. They act with the daemon's rights, so they are for its owner and admin keys."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from runner.mcp.config import ServerConfig
from runner.mcp.host import function_names
from runner.mcp.wire import McpResult, McpTool
from runner.server.caller import current_caller
from runner.server.http_request import HttpRequest
from runner.server.request_body import WireModel
from runner.server.routes import route


class McpEntry(TypedDict):
    """A server of mcp.json. transport: stdio or http."""

    name: str
    transport: str
    running: bool


class McpList(TypedDict):
    """The servers. path: the file."""

    path: str
    servers: list[McpEntry]


class OfferedTool(McpTool):
    """A tool of a server. function: the name under which models know it; asks: a person is to be
    asked before it is called."""

    server: str
    function: str
    asks: bool


class OfferedTools(TypedDict):
    """The tools of servers. problems: what was left out, and why."""

    tools: list[OfferedTool]
    problems: list[str]


class McpServers(WireModel):
    """POST /api/mcp/tools."""

    servers: Annotated[list[str], Field(min_length=1, max_length=16)]


class McpCall(WireModel):
    """POST /api/mcp/{server}/call."""

    tool: str = Field(min_length=1, max_length=128)
    arguments: dict[str, Any] = Field(default_factory=dict)


@route("GET", "/api/mcp")
async def list_servers(http: HttpRequest) -> McpList:
    """List the MCP servers of mcp.json."""
    host = http.services.mcp
    servers = await host.servers()
    return {
        "path": str(host.path),
        "servers": [
            {"name": name, "transport": config.transport, "running": running}
            for name, (config, running) in servers.items()
        ],
    }


@route("POST", "/api/mcp/tools")
async def list_tools(http: HttpRequest, body: McpServers) -> OfferedTools:
    """List the tools of servers, which are started if necessary."""
    offered: list[tuple[str, McpTool]] = []
    problems: list[str] = []
    configs: dict[str, ServerConfig] = {}
    async with http.cancelled_on_disconnect():
        for name in dict.fromkeys(body.servers):
            async with http.services.mcp.opened(name) as server:
                found = await server.tools()
                configs[name] = server.session.config
            offered += ((name, tool) for tool in found["tools"])
            problems += (f"{name}: {problem}" for problem in found["problems"])
    tools: list[OfferedTool] = [
        {**tool, "server": name, "function": function, "asks": configs[name].asks(tool["name"])}
        for function, (name, tool) in function_names(offered).items()
    ]
    return {"tools": tools, "problems": problems}


@route("POST", "/api/mcp/{server}/call")
async def call_tool(http: HttpRequest, body: McpCall) -> McpResult:
    """Call a tool. The request counts as approval."""
    name = http.parameter("server")
    async with http.cancelled_on_disconnect(), http.services.mcp.opened(name) as server:
        return await server.call(body.tool, body.arguments, current_caller().share)
