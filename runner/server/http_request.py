"""One HTTP request and its answer, over bare ASGI: the body with its bounds, replies, streams.

A stream writes one ASGI event for each write, nothing more: at thousands of tokens a second
every layer between counts. Knows nothing of surfaces or models.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from runner.errors import InvalidRequest
from runner.server.body_budget import BodyMemory
from runner.server.body_pace import MAX_BODY_S, MAX_UPLOAD_S, BodyPace
from runner.server.json_parts import parts_of, to_json_part
from runner.server.request_body import (
    BodyReader,
    Completion,
    WireT,
    parse_body,
    parse_large,
)
from runner.server.services import Services
from runner.turns import LARGE_BYTES, one_by_one

log = logging.getLogger("hearth.models")

_MAX_WARNING_CHARS = 1000
_PART_BYTES = 64 * 1024  # of an answer, that are sent at once
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class HttpRequest:
    """A request being answered."""

    __slots__ = (
        "_memory",
        "_receive",
        "_send",
        "_task",
        "answer_headers",
        "content_type",
        "finished",
        "gone",
        "request_id",
        "scope",
        "services",
        "started",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send, services: Services) -> None:
        self.scope = scope
        self.services = services
        self.request_id = request_id_of(scope)
        self.started = False
        self.finished = False
        self.gone = False
        self.content_type = ""
        self.answer_headers: dict[str, str] = {}  # sent with the answer
        _ANSWER_HEADERS.set(self.answer_headers)
        self._memory = BodyMemory(services.bodies)
        self._memory.make_current()
        self._receive = receive
        self._send = send
        self._task: asyncio.Task[Any] | None = None

    @property
    def headers(self) -> Headers:
        """What the client sent, by names in any case."""
        return Headers(scope=self.scope)

    @property
    def of_anthropic(self) -> bool:
        """Whether the client says that it speaks to Anthropic: all of its SDKs send a version."""
        return "anthropic-version" in self.headers

    def parameter(self, name: str) -> str:
        """A part of the path."""
        return str(self.scope["path_params"][name])

    @property
    def body_size_bytes(self) -> int | None:
        """The length of the body, when the client said it."""
        value = self.headers.get("content-length", "")
        return int(value[:20]) if value.isdigit() else None

    async def chunks(self, max_s: float = MAX_UPLOAD_S) -> AsyncIterator[bytes]:
        """The body as it arrives, within max_s. Raises HttpError 408, ClientDisconnected."""
        more, pace = True, BodyPace(max_s)
        while more:
            message = await pace.receive(self._receive)
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]

    async def body(self, max_bytes: int | None = None) -> bytearray:
        """The whole body, of at most max_bytes where less may be sent than the path takes. Raises
        HttpError 413, 408 and 503, InvalidRequest, ClientDisconnected."""
        reader = BodyReader(self.scope["path"], self._memory)
        async for chunk in self.chunks(MAX_BODY_S):
            reader.add(chunk)
            if max_bytes is not None and len(reader.body) > max_bytes:
                raise InvalidRequest(f"the body has more than {max_bytes} bytes")
        return reader.body

    async def read(self, model: type[WireT], complete: Completion | None = None) -> WireT:
        """The JSON body as model; complete adds what it leaves out. Raises InvalidRequest,
        Unsupported naming the field."""
        body = await self.body()
        if len(body) <= LARGE_BYTES:
            return parse_body(body, model, complete)
        return await parse_large(body, model, complete)

    def inherit(self, other: HttpRequest) -> None:
        """Answer what other has read: its id and the memory for its body are this one's now."""
        self.request_id = other.request_id
        self._memory = other.keep_memory()
        self._memory.make_current()

    def hold(self, size_bytes: int) -> None:
        """Have memory for a body that the handler reads itself. Raises HttpError 503."""
        self._memory.hold(size_bytes)

    def keep_memory(self) -> BodyMemory:
        """What it holds, which lasts longer than the request: release it."""
        kept, self._memory = self._memory, BodyMemory(self.services.bodies)
        return kept

    def release(self) -> None:
        """Give back the memory that it holds: the request is over."""
        self._memory.release()

    async def reply(
        self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with JSON."""
        parts = await one_by_one(to_json_part, parts_of(value))
        await self.reply_bytes(b"".join(parts), "application/json", status, headers)

    async def reply_bytes(
        self,
        body: bytes,
        content_type: str,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer with body. Raises HttpError 503 where there is no memory for it."""
        self._memory.hold_answer(len(body))
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, content_type, headers, length)
        await self.finish(body)

    async def start(self, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """Begin a stream."""
        extra = {"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})}
        await self._start(200, content_type, extra)

    async def write(self, data: bytes) -> None:
        """Send a part of the stream. Waits while the client does not read."""
        await self._send_body(data, more=True)

    async def finish(self, data: bytes = b"") -> None:
        """Send the last part."""
        self.finished = True
        await self._send_body(data, more=False)

    async def pass_on(self, head: Message) -> None:
        """Begin an answer with a head that is complete."""
        self.started = True
        await self._send(head)

    @contextlib.asynccontextmanager
    async def cancelled_on_disconnect(self) -> AsyncIterator[None]:
        """Inside, a client that goes away cancels the current task at once. The body must have
        been read."""
        self._task = asyncio.current_task()
        watcher = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._task = None
            watcher.cancel()

    def abandon(self) -> None:
        """Treat the client as gone."""
        if not self.finished and not self.gone and self._task is not None:
            self.gone = True
            self._task.cancel()

    async def _send_body(self, data: bytes, *, more: bool) -> None:
        """Little of what is large waits in the connection, while what counts as its memory is
        held: the server only waits before each part."""
        last = max(0, len(data) - 1) // _PART_BYTES * _PART_BYTES
        for start in range(0, last, _PART_BYTES):
            part = data[start : start + _PART_BYTES]
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._send({"type": "http.response.body", "body": data[last:], "more_body": more})

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.abandon()

    async def _start(
        self,
        status: int,
        content_type: str,
        headers: Mapping[str, str] | None,
        *raw: tuple[bytes, bytes],
    ) -> None:
        self.started = True
        self.content_type = content_type
        all_headers = {**(headers or {}), **self.answer_headers}
        encoded = [(b"content-type", content_type.encode()), *raw]
        encoded.append((b"x-request-id", self.request_id.encode()))
        encoded += [(k.encode(), v.encode("latin-1")) for k, v in all_headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})


_ANSWER_HEADERS: ContextVar[dict[str, str] | None] = ContextVar("answer_headers", default=None)


def warn(model: str, notes: Sequence[str]) -> None:
    """Let the log say what of a request has no effect, and the answer to the request of this task,
    unless that has begun."""
    if not notes:
        return
    log.warning("%s: %s", model, "; ".join(notes))
    headers = _ANSWER_HEADERS.get()
    if headers is not None:
        before = headers.get("x-hearth-warning", "")
        new = [note for note in notes if note not in before]
        told = "; ".join(filter(None, (before, *new))).encode("ascii", "replace").decode()
        headers["x-hearth-warning"] = told.replace("\n", " ")[:_MAX_WARNING_CHARS]


def request_id_of(scope: Scope) -> str:
    """The id that the client gave its request in x-request-id, or a fresh one. It is in the
    answer's headers and in the log."""
    for name, value in scope.get("headers", ()):
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return f"req_{secrets.token_hex(12)}"


class ClientDisconnected(Exception):
    """The client closed the connection before its request was complete."""
