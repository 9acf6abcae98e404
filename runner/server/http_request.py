"""One HTTP request and its answer, over bare ASGI: the body with its bounds, replies, streams.

A stream writes one ASGI event for each write, nothing more: at thousands of tokens a second
every layer between counts. Knows nothing of surfaces or models.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json, to_json
from starlette.types import Receive, Scope, Send

from runner.errors import InvalidRequest
from runner.server.errors import HttpError

if TYPE_CHECKING:
    from runner.server.services import Services

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_IMAGES_BODY_BYTES = 64 * 1024 * 1024  # 40 MiB of images in base64, and their conversation
BODY_TIMEOUT_S = 60.0

_WITH_IMAGES = frozenset(
    (
        *("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
        *("/api/chat", "/api/generate", "/tokenize", "/apply-template"),
    )
)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")

WireT = TypeVar("WireT", bound="WireModel")


class WireModel(BaseModel):
    """The base of what clients send: exact types, no NaN; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class HttpRequest:
    """A request being answered."""

    __slots__ = ("_receive", "_send", "_task", "content_type", "finished", "gone",
                 "request_id", "scope", "services", "started", "writing_since_s")  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send, services: Services) -> None:
        self.scope = scope
        self.services = services
        self.request_id = request_id_of(scope)
        self.started = False
        self.finished = False
        self.gone = False
        self.content_type = ""
        self.writing_since_s: float | None = None
        self._receive = receive
        self._send = send
        self._task: asyncio.Task[Any] | None = None

    def parameter(self, name: str) -> str:
        """A part of the path."""
        return str(self.scope["path_params"][name])

    @property
    def body_size_bytes(self) -> int | None:
        """The length of the body, when the client said it."""
        for key, value in self.scope["headers"]:
            if key == b"content-length" and value.isdigit():
                return int(value[:20])
        return None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises ClientGone."""
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]

    async def body(self) -> bytes:
        """The whole body. Raises HttpError 413 and 408, ClientGone."""
        parts, size, most = [], 0, body_limit_bytes(self.scope["path"])
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                async for chunk in self.chunks():
                    size += len(chunk)
                    if size > most:
                        raise too_large(most)
                    parts.append(chunk)
        except TimeoutError:
            raise HttpError(408, "timeout", "the request body did not arrive in time") from None
        return b"".join(parts)

    async def read(self, model: type[WireT]) -> WireT:
        """The JSON body as model. Raises InvalidRequest naming the field."""
        body = await self.body()
        if not body:
            raise InvalidRequest("missing request body: send a JSON object")
        try:
            value = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise InvalidRequest(f"the body is not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise InvalidRequest("the body must be a JSON object")
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise _of_validation(error) from None

    async def reply(
        self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with JSON."""
        await self.reply_bytes(to_json(value), "application/json", status, headers)

    async def reply_bytes(
        self,
        body: bytes,
        content_type: str,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer with body."""
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, content_type, headers, length)
        await self.finish(body)

    async def start(self, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """Begin a stream."""
        extra = {"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})}
        await self._start(200, content_type, extra)

    async def write(self, data: bytes) -> None:
        """Send a part of the stream. Waits while the client does not read."""
        self.writing_since_s = asyncio.get_running_loop().time()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.writing_since_s = None

    async def finish(self, data: bytes = b"") -> None:
        """Send the last part."""
        self.finished = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

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
        encoded = [(b"content-type", content_type.encode()), *raw]
        encoded.append((b"x-request-id", self.request_id.encode()))
        encoded += [(k.encode(), v.encode("latin-1")) for k, v in (headers or {}).items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})


def request_id_of(scope: Scope) -> str:
    """The id that the client gave its request in x-request-id, or a fresh one. It is in the
    answer's headers and in the log."""
    for name, value in scope.get("headers", ()):
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return f"req_{secrets.token_hex(12)}"


class ClientDisconnected(Exception):
    """The client closed the connection before its request was complete."""


def body_limit_bytes(path: str) -> int:
    """The longest body that a path takes."""
    return MAX_IMAGES_BODY_BYTES if path in _WITH_IMAGES else MAX_BODY_BYTES


def too_large(limit_bytes: int) -> HttpError:
    """The refusal of a body over the limit."""
    return HttpError(
        413,
        "body_too_large",
        f"the body is longer than {limit_bytes // (1 << 20)} MiB",
        connection="close",
    )


def _of_validation(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_context=False)[0]
    path = ".".join(str(part) for part in first["loc"]) or "body"
    shown = repr(first.get("input"))
    value = shown if len(shown) <= 60 else shown[:60] + "..."
    if first["type"] == "missing":
        return InvalidRequest(f"{path} is missing", param=path)
    reason = first["msg"].removeprefix("Value error, ")
    return InvalidRequest(f"{path}: {reason[:1].lower()}{reason[1:]} (got {value})", param=path)
