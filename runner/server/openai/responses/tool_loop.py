"""A response with tools that the daemon runs: generations in turns with their calls, until the
model makes no more of them or the client has to answer one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from runner.errors import HearthError, InvalidRequest, StorageFailed
from runner.mcp.wire import MAX_TOOLS_BYTES
from runner.server.errors import failure_of
from runner.server.generation import prepare
from runner.server.openai.responses import mcp_items
from runner.server.openai.responses.builder import ResponseBuilder
from runner.server.openai.responses.events import EventLog
from runner.server.openai.responses.file_search import FileSearch
from runner.server.openai.responses.items import messages_of
from runner.server.openai.responses.mcp_tools import McpServerTools
from runner.server.openai.responses.new_response import NewResponse, keep
from runner.server.openai.responses.result_room import ResultRoom
from runner.server.openai.responses.server_tool import ServerCall
from runner.server.openai.responses.streaming import prepare_builder
from runner.server.services import Services
from runner.server.sse import DONE, EVENT_STREAM
from runner.server.stream import StreamTarget
from runner.types import GenerateRequest, ToolCall

MAX_CALLS: Final = 16  # of one response
NO_MORE: Final = "No more calls: answer with what you have."


class ToolLoop:
    """One response. Enter it: what its tools need is found then, and left at the end."""

    def __init__(self, services: Services, new: NewResponse, builder: ResponseBuilder) -> None:
        self._services = services
        self._new = new
        self._builder = builder
        self._log = EventLog()
        self._keeps = False  # the response, before its last event
        self._stack = contextlib.AsyncExitStack()
        self._search: FileSearch | None = None
        self._servers: dict[str, McpServerTools] = {}
        self._approved: list[mcp_items.Item] = []
        given = new.body.max_tool_calls
        self._left = MAX_CALLS if given is None else max(0, min(given, MAX_CALLS))
        self._room = ResultRoom(services.models, new.request)

    async def __aenter__(self) -> ToolLoop:
        """Raises HttpError, InvalidRequest, McpServerNotFound, NetworkForbidden for tools that the
        caller cannot use, and approvals of what is not there."""
        body = self._new.body
        if body.file_search is not None:
            self._search = FileSearch(self._services, body, self._builder.sources)
            await self._search.open()
        for tool in body.mcp_tools:
            server = McpServerTools(self._services, tool, self._stack)
            self._servers[server.label] = server
            await server.open()
        self._approved = mcp_items.approved(self._new.history, self._new.input_from)
        for request in self._approved:
            if (label := request.get("server_label")) not in self._servers:
                raise InvalidRequest(
                    f"a call of the MCP server {str(label)[:80]!r} is approved, but no tool has "
                    "this server_label: send it again",
                    param="tools",
                )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def answer(self, target: StreamTarget | None) -> None:
        """Make the response, and keep it. target: where its events go; a fault after the first one
        is an event. Raises what run does."""
        if target is None:
            await self.run(self._log)
            await keep(self._services, self._new, self._builder.response())
            return
        making = asyncio.create_task(self._run_and_keep(target.request_id))
        try:
            await target.start(EVENT_STREAM)
            async with contextlib.aclosing(self._log.follow(-1)) as events:
                async for data in events:
                    await target.write(data)
            await target.finish(DONE)
        finally:
            making.cancel()
            await asyncio.wait({making})

    async def run(self, log: EventLog) -> None:
        """Generate and call to the end, with the events in log. Raises what listing tools and
        generating raise."""
        self._log, builder = log, self._builder
        request = await self.with_tools()
        begun = len(builder.output)
        for approved in self._approved:
            call = self._servers[approved["server_label"]].approved(approved)
            await self._tell(builder.make_call(call, str(approved.get("arguments") or "")))
        while True:
            if builder.waiting:
                results = {call.item["id"]: await self._run(call) for call in [*builder.waiting]}
                if builder.asks:
                    await self._tell(builder.end())
                    return
                request = self._going_on(request, builder.output[begun:], results)
            begun = len(builder.output)
            await self._generate(request)
            if builder.ended:
                return

    async def with_tools(self) -> GenerateRequest:
        """The request with all that the model is offered: the tools of a server are listed, unless
        the conversation has them. Raises InvalidRequest, McpFailed, QueueFull."""
        request, builder = self._new.request, self._builder
        taken = {tool["function"]["name"] for tool in request.tools}
        for label, server in self._servers.items():
            offer, share = server.offer, MAX_TOOLS_BYTES // len(self._servers)
            known = mcp_items.listed_tools(self._new.history, label)
            if known is not None:
                offer(known, taken, share)
                continue
            item = mcp_items.list_item(label)
            await self._tell(builder.begin_item(item))
            try:
                item["tools"] = mcp_items.told(offer(await server.listed(), taken, share))
            except HearthError as error:
                item["error"] = error.message
                await self._tell(builder.end_item(item, "failed"))
                raise
            await self._tell(builder.end_item(item, "completed"))
        ours = (self._search, *self._servers.values())
        builder.server_tools = {
            function["name"]: tool for tool in ours if tool for function in tool.functions
        }
        if not self._servers:
            return request
        offered = [
            {"type": "function", "function": function}
            for server in self._servers.values()
            for function in server.functions
        ]
        names = {label: server.names for label, server in self._servers.items()}
        choice = self._new.body.choice(names)
        tools = (*request.tools, *offered)
        return replace(request, tools=tools, tool_choice=choice)

    async def _run_and_keep(self, request_id: str) -> None:
        """Make the response and keep it before its last event, also if that is a fault."""
        builder, self._keeps = self._builder, True
        self._log.add(builder.start())
        try:
            await self.run(self._log)
        except Exception as error:
            last = builder.fail(failure_of(error, request_id))
            with contextlib.suppress(StorageFailed):
                await keep(self._services, self._new, builder.response())
            self._log.add(last)
        finally:
            self._log.close()

    async def _generate(self, request: GenerateRequest) -> None:
        async with prepare(self._services, request) as generation:
            prepare_builder(self._builder, generation)
            deltas = generation.start()
            try:
                while not deltas.done:
                    for _, delta in await deltas.read():
                        await self._tell(self._builder.add(delta))
            finally:
                deltas.cancel()

    async def _run(self, call: ServerCall) -> tuple[ToolCall, str]:
        """A call, and what the model is told of it."""
        made = ToolCall(call.id, call.function, mcp_items.sound_arguments(call.arguments))
        if self._left <= 0:
            call.item["status"] = "incomplete"
            await self._tell(self._builder.called(call))
            return made, NO_MORE
        self._left -= 1
        if call.tool.begins is not None:
            await self._tell(self._builder.item_event(call.item, call.tool.begins))
        text = await call.tool.run(call, self._room)
        await self._tell(self._builder.called(call))
        return made, text

    def _going_on(
        self,
        request: GenerateRequest,
        said: list[dict[str, Any]],
        results: Mapping[str, tuple[ToolCall, str]],
    ) -> GenerateRequest:
        """The request that goes on after what the model has said, and the results of its calls."""
        said = sorted(said, key=lambda item: item["id"] in results)  # text may follow a call
        messages = (*(request.messages or ()), *messages_of(said, None, results))
        tools = request.tools
        if self._left <= 0:
            ours = self._builder.server_tools
            tools = tuple(tool for tool in tools if tool["function"]["name"] not in ours)
        names = None if self._new.body.forces_tool else request.tool_choice.names
        choice = replace(request.tool_choice, mode="auto", names=names)
        return replace(request, messages=messages, continues=False, tools=tools, tool_choice=choice)

    async def _tell(self, events: bytes) -> None:
        if self._keeps and self._builder.ended:
            await keep(self._services, self._new, self._builder.response())
        self._log.add(events)
