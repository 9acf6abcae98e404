"""/v1/stream and /v1/streams/lookup: answers to requests with X-Conversation-Id, read again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from runner.errors import InvalidRequest
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.llamacpp.answers import StreamState
from runner.server.query import query_params
from runner.server.request_body import WireModel
from runner.server.routes import route
from runner.server.sse import EVENT_STREAM
from runner.server.stream_sessions import MAX_ID_CHARS

_MAX_OFFSET_DIGITS = 15


class StreamLookupRequest(WireModel):
    """POST /v1/streams/lookup."""

    conversation_ids: list[Annotated[str, Field(max_length=MAX_ID_CHARS)]] = Field(max_length=1000)


@route("GET", "/v1/stream", scope="inference", streams=EVENT_STREAM)
async def resume_stream(http: HttpRequest) -> None:
    """Read the answer of ?conv_id= from byte ?from= on, including what is still to come. 503 before
    it has begun."""
    conversation, start = _asked(http)
    session = http.services.streams.find(conversation)
    if session is None:
        raise HttpError(404, "stream_not_found", "no stream of this conversation is kept")
    if session.head is None:
        raise HttpError(503, "loading", "the answer has not begun")
    if not session.dropped_bytes <= start <= session.total_bytes:
        kept = f"bytes {session.dropped_bytes} to {session.total_bytes} are kept"
        raise InvalidRequest(f"from={start}: {kept}", param="from")
    async with http.cancelled_on_disconnect():
        await http.start(EVENT_STREAM)
        async for data in session.read(start):
            await http.write(data)
        await http.finish()


@route("DELETE", "/v1/stream", scope="inference")
async def stop_stream(http: HttpRequest) -> None:
    """End the answer of ?conv_id= and discard it. If there is none, nothing happens."""
    http.services.streams.stop(_asked(http)[0])
    await http.pass_on({"type": "http.response.start", "status": 204, "headers": []})
    await http.finish()


@route("POST", "/v1/streams/lookup", scope="inference")
async def look_up_streams(http: HttpRequest, body: StreamLookupRequest) -> list[StreamState]:
    """List the caller's conversations whose answer can be resumed."""
    found = {
        name: session
        for conversation in dict.fromkeys(body.conversation_ids)
        for name, session in http.services.streams.related(conversation).items()
    }
    return [
        StreamState(
            conversation_id=name,
            is_done=session.completed_at is not None,
            total_bytes=session.total_bytes,
            started_at=int(session.started_at),
            completed_at=int(session.completed_at or 0),
        )
        for name, session in found.items()
    ]


def _asked(http: HttpRequest) -> tuple[str, int]:
    """The conversation, and the offset."""
    query = query_params(http.scope["query_string"], 20)
    conversation, start = query.get("conv_id", ""), query.get("from", "0")
    if not conversation:
        raise InvalidRequest("conv_id is missing: name the X-Conversation-Id", param="conv_id")
    if not (start.isascii() and start.isdigit() and len(start) <= _MAX_OFFSET_DIGITS):
        raise InvalidRequest(f"from={start[:40]!r} is not a number of bytes", param="from")
    return conversation, int(start)
