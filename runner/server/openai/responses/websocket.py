"""GET /v1/responses: responses over a WebSocket, one turn after the other.

Owns the state of one connection: the last response, from which the client may go on also if it is
not stored.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import Field
from pydantic_core import to_json

from runner.errors import Unsupported
from runner.server.access import check_access
from runner.server.caller import set_caller
from runner.server.errors import HttpError, OpenAIErrors, failure_of
from runner.server.generation import prepare
from runner.server.http_request import ClientDisconnected, HttpRequest
from runner.server.openai.responses.builder import ResponseBuilder
from runner.server.openai.responses.new_response import keep, new_response
from runner.server.openai.responses.respond import respond
from runner.server.openai.responses.response_store import StoredResponse
from runner.server.openai.responses.streaming import prepare_builder
from runner.server.openai.responses.wire import ResponsesRequest
from runner.server.request_body import parse_message
from runner.server.routes import route
from runner.server.services import Services
from runner.server.sse import DONE
from runner.server.websocket import WebSocket, WebSocketMessage, accepted

_SCOPE: Literal["inference"] = "inference"


class ResponseCreateEvent(ResponsesRequest):
    """What a client sends over a WebSocket. stream is ignored: every answer is one. stream_id comes
    back with each event; all streams of a connection are answered in one row."""

    type: Literal["response.create"]
    generate: bool | None = None  # false: only the beginning of a conversation
    stream_id: str | None = Field(None, max_length=256)

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if self.background:
            raise Unsupported("background is not possible over a WebSocket", param="background")


@route("GET", "/v1/responses", scope=_SCOPE)
async def open_websocket(http: HttpRequest) -> None:
    """Open a WebSocket for responses. Each message of the client is a body as for POST with the
    type response.create; the answer is the events of a stream."""
    async with accepted(http) as socket:
        await _Session(http, socket).run()


class _Session:
    """One connection."""

    def __init__(self, http: HttpRequest, socket: WebSocket) -> None:
        self._http = http
        self._services: Services = http.services
        self._socket = socket
        self._last: StoredResponse | None = None

    async def run(self) -> None:
        """Answer the messages until there are no more."""
        while True:
            try:
                message = await self._socket.receive()
            except HttpError as error:
                await self._tell(error, None)
                return
            if message is None:
                return
            turn = asyncio.create_task(self._answer(message))
            try:
                with self._socket.answering(turn.cancel):
                    await asyncio.wait({turn})
            finally:
                turn.cancel()
                message.release()
            if turn.cancelled() or turn.exception() is not None:
                return

    async def _answer(self, message: WebSocketMessage) -> None:
        """One turn. Raises ClientDisconnected."""
        event: ResponseCreateEvent | None = None
        message.memory.make_current()
        try:
            set_caller(await check_access(self._http, _SCOPE))
            path = self._http.scope["path"]
            event = await parse_message(message.data, path, message.memory, ResponseCreateEvent)
            await self._turn(event)
        except ClientDisconnected:
            raise
        except Exception as error:
            if event is not None and self._last and self._last_id == event.previous_response_id:
                self._last = None
            await self._tell(error, event)

    async def _turn(self, event: ResponseCreateEvent) -> None:
        new = await new_response(self._services, event, self._local)
        builder = ResponseBuilder(event, new.ident, new.compaction)
        target = _Events(self._socket, self._http.request_id, event.stream_id)
        if event.generate is False:
            async with prepare(self._services, new.request) as generation:
                prepare_builder(builder, generation)
                events = builder.without_answer(await generation.count_prompt())
            await keep(self._services, new, builder.response())
            await target.finish(events)
        else:
            await respond(self._services, new, builder, target)
        if builder.status != "failed":
            self._last = new.stored(builder.response())
        elif self._last_id == event.previous_response_id:
            self._last = None

    @property
    def _last_id(self) -> str | None:
        return self._last.response["id"] if self._last else None

    def _local(self, ident: str) -> StoredResponse | None:
        return self._last if self._last_id == ident else None

    async def _tell(self, error: Exception, event: ResponseCreateEvent | None) -> None:
        """Send the error of a turn that has not begun."""
        failure = failure_of(error, self._http.request_id)
        lane = {"stream_id": event.stream_id} if event and event.stream_id else {}
        told = {"type": "error", "status": failure.status, **lane}
        await self._socket.send(to_json({**told, "error": OpenAIErrors().error(failure)}))


class _Events:
    """A stream's events as messages: the target of one turn."""

    def __init__(self, socket: WebSocket, request_id: str, stream_id: str | None) -> None:
        self.request_id = request_id
        self.started = False
        self.finished = False
        self._socket = socket
        self._lane = b"" if stream_id is None else b',"stream_id":%s}' % to_json(stream_id)

    async def start(self, content_type: str) -> None:
        self.started = True

    async def write(self, data: bytes) -> None:
        for event in data.removesuffix(DONE).split(b"\n\n"):
            _, found, body = event.partition(b"\ndata: ")
            if found:  # else a comment that keeps a stream alive
                await self._socket.send(body[:-1] + self._lane if self._lane else body)

    async def finish(self, data: bytes = b"") -> None:
        self.finished = True
        await self.write(data)
