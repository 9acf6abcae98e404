"""A response whose model may search files: generations in turns with searches, until the model asks
for no more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from runner.errors import StorageFailed
from runner.server.errors import failure_of
from runner.server.generation import prepare
from runner.server.openai.responses.builder import ResponseBuilder
from runner.server.openai.responses.citations import SearchCall, Source
from runner.server.openai.responses.events import EventLog
from runner.server.openai.responses.new_response import NewResponse, keep
from runner.server.openai.responses.streaming import prepare_builder
from runner.server.openai.responses.wire import FILE_SEARCH, ResponseTool
from runner.server.openai.vector_stores.handlers import find_store, search, shown
from runner.server.openai.vector_stores.search import Filter
from runner.server.openai.vector_stores.vector_database import Found, VectorStore
from runner.server.openai.vector_stores.wire import SearchRequest
from runner.server.request_body import validate
from runner.server.services import Services
from runner.server.sse import DONE, EVENT_STREAM
from runner.server.stream import StreamTarget
from runner.types import GenerateRequest, Message, ToolCall, ToolChoice

MAX_SEARCHES: Final = 8  # of one response
DEFAULT_RESULTS: Final = 10
_RESULTS: Final = "file_search_call.results"
_CHARS_PER_TOKEN: Final = 2  # of the context, for all that is found: half of it


async def answer_with_search(
    services: Services, new: NewResponse, builder: ResponseBuilder, target: StreamTarget | None
) -> None:
    """Make the response, and keep it. target: where its events go; a fault after the first one is
    an event."""
    search = FileSearch(services, new, builder)
    await search.open()
    if target is None:
        await search.run(EventLog())
        await keep(services, new, builder.response())
        return
    log = EventLog()
    making = asyncio.create_task(search.run_kept(log, target.request_id))
    try:
        await target.start(EVENT_STREAM)
        async with contextlib.aclosing(log.follow(-1)) as events:
            async for data in events:
                await target.write(data)
        await target.finish(DONE)
    finally:
        making.cancel()


class FileSearch:
    """One response."""

    def __init__(self, services: Services, new: NewResponse, builder: ResponseBuilder) -> None:
        tool = new.body.file_search
        assert tool is not None
        self._services = services
        self._new = new
        self._builder = builder
        self._tool = tool
        self._stores: list[VectorStore] = []
        given = new.body.max_tool_calls
        self._left = MAX_SEARCHES if given is None else max(0, min(given, MAX_SEARCHES))
        self._left_chars = 0

    async def open(self) -> None:
        """Find the stores. Raises HttpError 404, InvalidRequest."""
        _asked(self._tool, ["x"])
        for ident in self._tool.vector_store_ids or ():
            self._stores.append(await find_store(self._services, ident))

    async def run_kept(self, log: EventLog, request_id: str) -> None:
        """Generate and search to the end, with the events in log; a fault is the last one."""
        builder, new = self._builder, self._new
        log.add(builder.start())
        try:
            await self.run(log, kept=True)
        except Exception as error:
            last = builder.fail(failure_of(error, request_id))
            with contextlib.suppress(StorageFailed):
                await keep(self._services, new, builder.response())
            log.add(last)
        finally:
            log.close()

    async def run(self, log: EventLog, *, kept: bool = False) -> None:
        """Generate and search to the end. kept: the response is stored before its last event.
        Raises what generating and searching raise."""
        request, builder = self._new.request, self._builder
        while True:
            async with prepare(self._services, request) as generation:
                prepare_builder(builder, generation)
                context = generation.requests[0].context_length or 0
                self._left_chars = self._left_chars or context * _CHARS_PER_TOKEN
                deltas = generation.start()
                try:
                    while not deltas.done:
                        for _, delta in await deltas.read():
                            events = builder.add(delta)
                            if kept and builder.ended:
                                await keep(self._services, self._new, builder.response())
                            log.add(events)
                finally:
                    deltas.cancel()
            if builder.ended:
                return
            request = await self._with_results(request, builder.take_searches(), log)

    async def _with_results(
        self, request: GenerateRequest, calls: Sequence[SearchCall], log: EventLog
    ) -> GenerateRequest:
        """The request that goes on after calls."""
        messages = [*(request.messages or ())]
        made = tuple(ToolCall(call.id, FILE_SEARCH, call.arguments) for call in calls)
        messages.append(Message("assistant", "", None, made))
        for call in calls:
            log.add(self._builder.searching(call))
            found, text = await self._search(call)
            wanted = _RESULTS in (self._new.body.include or ())
            told = [{**shown(each), "text": each.text} for each in found] if wanted else None
            log.add(self._builder.found(call, told))
            messages.append(Message("tool", text, tool_call_id=call.id, name=FILE_SEARCH))
        tools = request.tools
        if self._left <= 0:
            tools = tuple(tool for tool in tools if tool["function"]["name"] != FILE_SEARCH)
        choice = ToolChoice("auto", None, request.tool_choice.single)
        return replace(
            request, messages=tuple(messages), continues=False, tools=tools, tool_choice=choice
        )

    async def _search(self, call: SearchCall) -> tuple[list[Found], str]:
        """What a call finds, and how the model is told."""
        if self._left <= 0:
            return [], "No more searches: answer with what you have."
        self._left -= 1
        if not call.queries:
            return [], 'No query was given: call it with {"queries": ["..."]}.'
        found = await search(self._services, self._stores, _asked(self._tool, call.queries))
        texts, told = [], []
        for each in found:
            number = len(self._builder.sources) + 1
            text = f"[{number}] {each.file.filename}\n{each.text}"
            if len(text) > self._left_chars:
                break
            self._left_chars -= len(text)
            self._builder.sources.append(Source(each.file.id, each.file.filename))
            texts.append(text)
            told.append(each)
        return told, "\n\n".join(texts) or "Nothing was found."


def _asked(tool: ResponseTool, queries: list[str]) -> SearchRequest:
    """Raises InvalidRequest for what tool says of filters and ranking."""
    fields: dict[str, Any] = {
        "query": queries,
        "filters": tool.filters,
        "max_num_results": tool.max_num_results or DEFAULT_RESULTS,
        "ranking_options": tool.ranking_options,
    }
    asked = validate(fields, SearchRequest)
    Filter(asked.filters)
    return asked
