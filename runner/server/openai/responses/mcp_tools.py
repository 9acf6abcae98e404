"""The tools of an MCP server in a response: their list and their calls. The model gets a server's
output as the result of a tool, the client gets it as data."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from pydantic_core import to_json

from runner.errors import HearthError, NetworkForbidden
from runner.mcp.address import check_url
from runner.mcp.config import VisitedServer
from runner.mcp.host import Server
from runner.mcp.wire import McpTool
from runner.server.caller import current_caller
from runner.server.errors import HttpError
from runner.server.openai.responses.mcp_items import APPROVAL, CALL, function_name, outcome
from runner.server.openai.responses.result_room import ResultRoom
from runner.server.openai.responses.server_tool import ServerCall, ServerTool
from runner.server.openai.responses.wire import ResponseTool
from runner.server.services import Services

_INVALID_PARAMS: Final = -32602  # JSON-RPC
_INTERNAL_ERROR: Final = -32603


class McpServerTools(ServerTool):
    """A server in one response. stack: what is open until its end."""

    begins = None

    def __init__(self, services: Services, tool: ResponseTool, stack: AsyncExitStack) -> None:
        self.label = tool.server_label or ""
        self._services = services
        self._tool = tool
        self._stack = stack
        self._visited: VisitedServer | None = None  # where it is in no file
        self._server: Server | None = None
        self._offered: dict[str, McpTool] = {}  # by the names of functions

    async def open(self) -> None:
        """Whether the caller may use it. Raises HttpError 403, McpServerNotFound, Conflict,
        InvalidRequest, NetworkForbidden."""
        caller, url = current_caller(), self._tool.server_url
        if url is None:
            if not caller.admin:
                raise HttpError(
                    403,
                    "insufficient_scope",
                    f"the MCP server {self.label} is one of the daemon's owner: only an admin key "
                    "may use it; send server_url for a server of your own",
                )
            await self._services.mcp.find(self.label)
            return
        settings = self._services.settings
        if settings.offline:
            raise NetworkForbidden("server_url: HEARTH_OFFLINE is set")
        named = None if caller.trusted else settings.private_registries
        public = await check_url(url, named)
        self._visited = VisitedServer.model_validate(
            {"url": url, "headers": self._tool.sent_headers, "public_only": public}
        )

    async def listed(self) -> list[McpTool]:
        """What it offers. Raises McpFailed, QueueFull."""
        async with self._reached() as server:
            return (await server.tools())["tools"]

    def offer(self, tools: Iterable[McpTool], taken: set[str], max_bytes: int) -> list[McpTool]:
        """The tools that the model may call from now on: those that the request allows, whose
        functions are not among taken, and that are not too large together. taken: they are added
        to it."""
        for tool in tools:
            function = function_name(self.label, tool["name"])
            if function in taken or not self._tool.allows(tool["name"], tool["read_only"]):
                continue
            max_bytes -= len(to_json(tool))
            if max_bytes < 0:
                break
            taken.add(function)
            self._offered[function] = tool
        return list(self._offered.values())

    @property
    def names(self) -> list[tuple[str, str]]:
        """The tools that the model may call: their names, and those of their functions."""
        return [(tool["name"], function) for function, tool in self._offered.items()]

    @property
    def functions(self) -> list[dict[str, Any]]:
        said = self._tool.server_description
        return [
            {
                "name": function,
                "description": "\n".join(filter(None, (said, tool["description"]))),
                "parameters": tool["parameters"],
                "strict": False,
            }
            for function, tool in self._offered.items()
        ]

    def item(self, function: str) -> dict[str, Any]:
        tool = self._offered[function]
        if self._tool.asks(tool["name"], tool["read_only"]):
            return {"type": APPROVAL, "server_label": self.label, "name": tool["name"]}
        return self._call_item(tool["name"], None)

    def approved(self, request: Mapping[str, Any]) -> ServerCall:
        """The call that a person has agreed to."""
        item = self._call_item(str(request.get("name")), request["id"])
        return ServerCall(self, request["id"], function_name(self.label, item["name"]), item)

    async def run(self, call: ServerCall, room: ResultRoom) -> str:
        item, given = call.item, call.given
        if call.function not in self._offered:
            _fail(item, _INVALID_PARAMS, "There is no such tool.")
        elif given is None:
            _fail(item, _INVALID_PARAMS, "The arguments are not a JSON object.")
        else:
            try:
                async with self._reached() as server:
                    who = current_caller().share
                    result = await server.call(item["name"], given, who)
            except HearthError as error:
                _fail(item, _INTERNAL_ERROR, error.message)
            else:
                _end(item, await room.take(result["text"]), is_error=result["is_error"])
        return outcome(item)

    def _call_item(self, name: str, request: str | None) -> dict[str, Any]:
        return {
            "type": CALL,
            "server_label": self.label,
            "name": name,
            "approval_request_id": request,
            "output": None,
            "error": None,
        }

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[Server]:
        host = self._services.mcp
        if self._visited is None:
            async with host.opened(self.label) as server:
                yield server
            return
        if self._server is None or not self._server.session.is_open:
            visit = host.visited(self.label, self._visited, current_caller().share)
            self._server = await self._stack.enter_async_context(visit)
        yield self._server


def _fail(item: dict[str, Any], code: int, message: str) -> None:
    error = {"type": "mcp_protocol_error", "code": code, "message": message}
    item.update(status="failed", error=error)


def _end(item: dict[str, Any], text: str, *, is_error: bool) -> None:
    if is_error:
        content = [{"type": "text", "text": text}]
        error = {"type": "mcp_tool_execution_error", "content": content}
        item.update(status="failed", error=error)
    else:
        item.update(status="completed", output=text)
