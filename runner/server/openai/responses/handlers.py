"""POST /v1/responses and the paths of stored responses."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial

from runner.errors import Conflict, InvalidRequest, ResponseNotFound, Unsupported
from runner.server.generation import prepare
from runner.server.http_request import HttpRequest
from runner.server.ids import new_id
from runner.server.openai.answers import (
    CompactedResponse,
    DeletedResponse,
    InputItemList,
    InputTokens,
    ResponseObject,
)
from runner.server.openai.responses.background import BackgroundResponses
from runner.server.openai.responses.builder import ResponseBuilder, failed
from runner.server.openai.responses.compaction import summarize
from runner.server.openai.responses.compaction_item import compaction_item
from runner.server.openai.responses.events import EventLog
from runner.server.openai.responses.items import messages_of
from runner.server.openai.responses.new_response import (
    NewResponse,
    find_response,
    items_of,
    new_response,
)
from runner.server.openai.responses.respond import respond, respond_in_background, whole_request
from runner.server.openai.responses.response_store import ResponseStore, StoredResponse
from runner.server.openai.responses.usage import usage_of
from runner.server.openai.responses.wire import CompactRequest, ResponsesRequest
from runner.server.query import query_params
from runner.server.routes import route
from runner.server.sse import DONE, EVENT_STREAM
from runner.turns import in_steps
from runner.types import GenerateRequest


@route("POST", "/v1/responses", "/responses", scope="inference", streams=EVENT_STREAM)
async def create_response(http: HttpRequest, body: ResponsesRequest) -> ResponseObject | None:
    """Answer a conversation."""
    new = await new_response(http.services, body)
    if body.background:
        return await _begin_in_background(http, new)
    builder = ResponseBuilder(body, new.ident, new.compaction)
    async with http.cancelled_on_disconnect():
        await respond(http.services, new, builder, http if body.stream else None)
    return None if body.stream else builder.response()


@route("POST", "/v1/responses/input_tokens", "/responses/input_tokens", scope="inference")
async def count_input(http: HttpRequest, body: ResponsesRequest) -> InputTokens:
    """Count the prompt tokens of a response."""
    new = await new_response(http.services, body)
    async with http.cancelled_on_disconnect():
        request = await whole_request(http.services, new)
        async with prepare(http.services, request) as generation:
            tokens = await generation.count_prompt()
    return {"object": "response.input_tokens", "input_tokens": tokens}


@route("POST", "/v1/responses/compact", scope="inference")
async def compact_response(http: HttpRequest, body: CompactRequest) -> CompactedResponse:
    """Shorten a conversation. The result is the input to continue with: the user's messages, and a
    summary of everything."""
    items = (await items_of(http.services, body))[0]
    messages = await in_steps(messages_of, items, body.instructions)
    async with http.cancelled_on_disconnect():
        summary = await summarize(http.services, GenerateRequest(model=body.model), messages)
    own = [item for item in items if item.get("role") == "user"]
    return {
        "id": new_id("resp").replace("-", "_"),
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [
            *({"status": "completed", **item} for item in own),
            compaction_item(summary.text),
        ],
        "usage": usage_of(summary.finish, summary.reasoning_tokens),
    }


@route("GET", "/v1/responses/{id}", scope="inference", streams=EVENT_STREAM)
async def show_response(http: HttpRequest) -> ResponseObject | None:
    """Get a stored or running response; with stream=true its events."""
    after = _starting_after(http.scope["query_string"])
    if after is None:
        return await _response(http)
    await _send_events(http, await _log(http), after)
    return None


@route("GET", "/v1/responses/{id}/input_items", scope="inference")
async def list_input(http: HttpRequest) -> InputItemList:
    """List the input items of a response on one page, newest first unless order=asc."""
    stored = await _find(http, http.parameter("id"))
    items = stored.history[stored.input_from :]
    if b"order=asc" not in http.scope["query_string"]:
        items = items[::-1]
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return InputItemList(object="list", data=items, has_more=False, first_id=first, last_id=last)


@route("DELETE", "/v1/responses/{id}", scope="inference")
async def delete_response(http: HttpRequest) -> DeletedResponse:
    """Delete a response; a running one is cancelled."""
    ident = http.parameter("id")
    await _find(http, ident)
    await _background(http).cancel(ident)
    if not await asyncio.to_thread(_file(http).delete, ident):
        raise _unknown(ident)
    return {"id": ident, "object": "response", "deleted": True}


@route("POST", "/v1/responses/{id}/cancel", scope="inference")
async def cancel_response(http: HttpRequest) -> ResponseObject:
    """Cancel a background response."""
    ident = http.parameter("id")
    stored = await _find(http, ident)
    if not stored.response.get("background"):
        raise Conflict(f"response {ident[:80]} was not created in the background", param="id")
    await _background(http).cancel(ident)
    return await _response(http)


async def _begin_in_background(http: HttpRequest, new: NewResponse) -> ResponseObject | None:
    """Answer at once with the state "queued", or with the events as they come; the response is
    generated without its client."""
    services = http.services
    first = ResponseBuilder(new.body, new.ident, new.compaction)
    waiting = first.response()
    waiting["status"] = "queued"
    await asyncio.to_thread(_file(http).save, new.stored(waiting))

    make = partial(respond_in_background, services, new)
    memory = http.keep_memory()
    log = _background(http).start(new.ident, make, first, new.stored, memory)
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
    stored = await find_response(http.services, ident)
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
        await http.finish(DONE)


def _starting_after(query: bytes) -> int | None:
    """The place that a query asks to follow the events from: -1 is the beginning, None: it asks
    for the response itself. Raises InvalidRequest."""
    fields = query_params(query, 20)
    streamed, after = fields.get("stream", "false"), fields.get("starting_after", "")
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
