"""POST /v1/responses and the paths of stored responses."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from runner.errors import (
    Conflict,
    InvalidRequest,
    ResponseNotFound,
    StorageFailed,
    Unsupported,
)
from runner.server.caller import current_caller
from runner.server.errors import failure_of
from runner.server.generation import Generation, prepare
from runner.server.http_request import HttpRequest
from runner.server.ids import new_id
from runner.server.images import require_vision
from runner.server.openai.answers import DeletedResponse, InputItemList, ResponseObject
from runner.server.openai.responses.background import BackgroundResponses
from runner.server.openai.responses.builder import ResponseBuilder, failed
from runner.server.openai.responses.events import EventLog
from runner.server.openai.responses.images import with_files
from runner.server.openai.responses.items import input_items, left_open, messages_of
from runner.server.openai.responses.response_store import ResponseStore, StoredResponse
from runner.server.openai.responses.wire import ResponsesRequest
from runner.server.routes import route
from runner.server.sse import EVENT_STREAM, KEEP_ALIVE
from runner.server.stream import Deltas, StreamRenderer, send_stream
from runner.turns import in_steps
from runner.types import GenerateRequest


@dataclass(frozen=True, slots=True)
class _NewResponse:
    """A response to be generated. history: all items before its output. owner: whose it is."""

    body: ResponsesRequest
    ident: str
    history: list[dict[str, Any]]
    input_from: int
    request: GenerateRequest
    owner: str

    def stored(self, response: ResponseObject) -> StoredResponse:
        """It with what came of it."""
        return StoredResponse(response, self.history, self.input_from, self.owner)


@route("POST", "/v1/responses", scope="inference", streams=EVENT_STREAM)
async def create_response(http: HttpRequest, body: ResponsesRequest) -> ResponseObject | None:
    """Answer a conversation."""
    new = await _new_response(http, body)
    if body.background:
        return await _begin_in_background(http, new)
    async with http.cancelled_on_disconnect(), prepare(http.services, new.request) as generation:
        (parser,) = generation.parsers(call_deltas=True)
        builder = ResponseBuilder(body, new.ident, parser)
        if body.stream:
            await _stream(http, generation, builder, new)
            return None
        await _run(generation, builder, None)
    await _keep(http, new, builder)
    return builder.response()


async def _keep(http: HttpRequest, new: _NewResponse, builder: ResponseBuilder) -> None:
    if new.body.store is not False and not http.gone:
        await asyncio.to_thread(_file(http).save, new.stored(builder.response()))


@route("GET", "/v1/responses/{id}", scope="inference", streams=EVENT_STREAM)
async def show_response(http: HttpRequest) -> ResponseObject | None:
    """A stored response, or one in the making; with stream=true its events."""
    after = _starting_after(http.scope["query_string"])
    if after is None:
        return await _response(http)
    await _send_events(http, await _log(http), after)
    return None


@route("GET", "/v1/responses/{id}/input_items", scope="inference")
async def list_input(http: HttpRequest) -> InputItemList:
    """The input items of a response, all on one page, newest first unless order=asc."""
    stored = await _find(http, http.parameter("id"))
    items = stored.history[stored.input_from :]
    if b"order=asc" not in http.scope["query_string"]:
        items = items[::-1]
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return InputItemList(object="list", data=items, has_more=False, first_id=first, last_id=last)


@route("DELETE", "/v1/responses/{id}", scope="inference")
async def delete_response(http: HttpRequest) -> DeletedResponse:
    """Forget a response; one in the making is cancelled."""
    ident = http.parameter("id")
    await _find(http, ident)
    await _background(http).cancel(ident)
    if not await asyncio.to_thread(_file(http).delete, ident):
        raise _unknown(ident)
    return {"id": ident, "object": "response", "deleted": True}


@route("POST", "/v1/responses/{id}/cancel", scope="inference")
async def cancel_response(http: HttpRequest) -> ResponseObject:
    """Stop a response that is made in the background."""
    ident = http.parameter("id")
    stored = await _find(http, ident)
    if not stored.response.get("background"):
        raise Conflict(f"response {ident[:80]} was not created in the background", param="id")
    await _background(http).cancel(ident)
    return await _response(http)


async def _new_response(http: HttpRequest, body: ResponsesRequest) -> _NewResponse:
    before: list[dict[str, Any]] = []
    if body.previous_response_id is not None:
        previous = await _find(http, body.previous_response_id)
        before = [*previous.history, *previous.response["output"]]
    given = await with_files(await in_steps(input_items, body.input), http.services.batches.files)
    history = [*before, *given]
    messages = await in_steps(messages_of, history, body.instructions)
    request = body.generate_request(messages, closed=not left_open(given))
    await require_vision(http.services.library, body.model, messages, request.options)
    ident = new_id("resp").replace("-", "_")
    return _NewResponse(body, ident, history, len(before), request, current_caller().id)


async def _run(generation: Generation, builder: ResponseBuilder, log: EventLog | None) -> None:
    deltas = generation.start()
    try:
        while not deltas.done:
            events = b"".join(builder.add(delta) for _, delta in await deltas.read())
            if log is not None:
                log.add(events)
    finally:
        deltas.cancel()


async def _stream(
    http: HttpRequest, generation: Generation, builder: ResponseBuilder, new: _NewResponse
) -> None:
    """Stream the events; a fault after the first one is an event of the response. It is kept before
    the last one: a client may go on from it at once."""

    async def keep() -> None:
        await _keep(http, new, builder)

    try:
        await send_stream(http, generation.start(), _Renderer(builder), keep)
    except Exception as error:
        if not http.started or http.finished:
            raise
        last = builder.fail(failure_of(error, http.request_id))
        with contextlib.suppress(StorageFailed):
            await keep()
        await http.finish(last)


class _Renderer(StreamRenderer):
    """The events of a builder as a stream."""

    content_type = EVENT_STREAM

    def __init__(self, builder: ResponseBuilder) -> None:
        self._builder = builder
        self._begun = False
        self._last = b""

    def events(self, arrived: Deltas) -> bytes:
        out = b"" if self._begun else self._builder.start()
        self._begun = True
        for _, delta in arrived:
            events = self._builder.add(delta)
            if delta.finish is None:
                out += events
            else:
                self._last = events
        return out

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE if self._begun else self.events([])

    def end(self) -> bytes:
        return self._last


async def _begin_in_background(http: HttpRequest, new: _NewResponse) -> ResponseObject | None:
    """Answer at once with the state "queued", or with the events as they come; the response is
    generated without its client."""
    services = http.services
    first = ResponseBuilder(new.body, new.ident, None)
    waiting = first.response()
    waiting["status"] = "queued"
    await asyncio.to_thread(_file(http).save, new.stored(waiting))

    async def make(builder: ResponseBuilder, log: EventLog) -> None:
        async with prepare(services, new.request) as generation:
            (parser,) = generation.parsers(call_deltas=True)
            log.add(builder.begin(parser))
            await _run(generation, builder, log)

    log = _background(http).start(new.ident, make, first, new.stored)
    if not new.body.stream:
        return waiting
    await _send_events(http, log)
    return None


async def _response(http: HttpRequest) -> ResponseObject:
    return (await _find(http, http.parameter("id"))).response


async def _log(http: HttpRequest) -> EventLog:
    """The events of a response. Raises Unsupported unless it was created in the background."""
    ident = http.parameter("id")
    stored = await _find(http, ident)
    running = _background(http).log(ident)
    if running is not None:
        return running
    if not stored.response.get("background"):
        raise Unsupported(
            f"response {ident[:80]} was not created in the background: its events were not stored; "
            "retrieve it without stream",
            param="stream",
        )
    events = await asyncio.to_thread(_file(http).events, ident)
    return EventLog(failed(stored.response) if events is None else events, closed=True)


async def _find(http: HttpRequest, ident: str) -> StoredResponse:
    stored = await _background(http).find(ident, current_caller().sees)
    if stored is None:
        raise _unknown(ident)
    return stored


def _unknown(ident: str) -> ResponseNotFound:
    return ResponseNotFound(f"no such stored response: {ident[:80]!r}")


def _file(http: HttpRequest) -> ResponseStore:
    return http.services.background.file


def _background(http: HttpRequest) -> BackgroundResponses:
    return http.services.background


async def _send_events(http: HttpRequest, log: EventLog, after: int = -1) -> None:
    """Stream the events of a log after that place. A client that goes away ends its own stream
    only."""
    async with http.cancelled_on_disconnect(), contextlib.aclosing(log.follow(after)) as events:
        await http.start(EVENT_STREAM)
        async for data in events:
            await http.write(data)
        await http.finish()


def _starting_after(query: bytes) -> int | None:
    """The place that a query asks to follow the events from: -1 is the beginning, None: it asks
    for the response itself. Raises InvalidRequest."""
    fields = parse_qs(query.decode("latin-1"), max_num_fields=20)
    streamed, after = fields.get("stream", ["false"])[-1], fields.get("starting_after", [""])[-1]
    if streamed.lower() not in ("true", "false"):
        raise InvalidRequest(f"stream={streamed[:20]!r} is not true or false", param="stream")
    if after and not (after.isascii() and after.isdigit() and len(after) < 10):
        raise InvalidRequest(
            f"starting_after={after[:20]!r} is not a sequence_number", param="starting_after"
        )
    if streamed.lower() == "true":
        return int(after) if after else -1
    if after:
        raise InvalidRequest("starting_after needs stream=true", param="starting_after")
    return None
