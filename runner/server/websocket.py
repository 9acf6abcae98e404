"""A WebSocket (RFC 6455) on a connection that came as an HTTP request: its messages, one at a time,
within the bounds that bodies have.

websockets' protocol without I/O reads and writes the frames. Owns the handshake, how much may wait
and how slowly it may come, and when the connection ends. Compression is never agreed on, so that a
message is as long as what was sent. Knows no API.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from starlette.types import Message

from runner.errors import Unsupported
from runner.server.body_budget import BodyMemory
from runner.server.body_pace import MAX_BODY_S, BodyPace
from runner.server.connections import CONNECTION, ConnectionBounds
from runner.server.errors import HttpError
from runner.server.http_request import ClientDisconnected, HttpRequest
from runner.server.request_body import body_limit_bytes
from runner.server.request_log import current_record

if TYPE_CHECKING:
    from websockets.frames import Frame
    from websockets.protocol import Protocol

MAX_AGE_S: Final = 3600.0  # as OpenAI has it
PING_S: Final = 30.0  # of silence; a client that does not answer until the next one is gone
MAX_FRAMES: Final = 1024  # before a message is whole, and one more for each MIN_FRAME_BYTES of it
MIN_FRAME_BYTES: Final = 128
_STEP_BYTES: Final = 8 * 1024  # read at a time: 1,400 of the smallest frames, 10 ms
_MAX_RAW_BYTES: Final = 256 * 1024  # received and not read; then the client waits
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of the RFC
_DONE: Final = 1000
_GOING_AWAY: Final = 1001
_NO_TEXT: Final = 1003
_POLICY: Final = 1008
_TRY_AGAIN: Final = 1013

_quiet = logging.getLogger("hearth.websocket")  # the protocol would log what is said
_quiet.setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class WebSocketMessage:
    """A whole message, and what it holds of the memory for bodies until that is released."""

    data: bytes
    memory: BodyMemory

    def release(self) -> None:
        """The message is answered."""
        self.memory.release()


@asynccontextmanager
async def accepted(http: HttpRequest) -> AsyncIterator[WebSocket]:
    """The request as a WebSocket; afterwards the connection is closed. Raises HttpError 426 for one
    that does not ask for it, Unsupported where websockets is not installed."""
    connection = http.scope.get("state", {}).get(CONNECTION)
    if not isinstance(connection, ConnectionBounds) or not _is_offered(http, connection):
        raise HttpError(
            426,
            "upgrade_required",
            "GET opens a WebSocket here: send Connection: Upgrade, Upgrade: websocket and "
            "Sec-WebSocket-Version: 13, or use POST",
            upgrade="websocket",
            **{"sec-websocket-version": "13"},
        )
    answer = _handshake("".join(http.headers.getlist("sec-websocket-key")), http.request_id)
    socket = WebSocket(http, connection)
    connection.take_over(socket)
    sockets = http.services.websockets
    sockets.add(socket)
    reader = asyncio.create_task(socket.read())
    try:
        await connection.send(answer)
        if record := current_record():
            record.status = 101
        yield socket
    finally:
        sockets.discard(socket)
        reader.cancel()
        socket.close(_GOING_AWAY if http.services.draining else _DONE)


class WebSocket:
    """One connection. Its messages come by receive, one at a time; send answers."""

    def __init__(self, http: HttpRequest, connection: ConnectionBounds) -> None:
        """Raises Unsupported."""
        self._connection = connection
        self._services = http.services
        self._protocol = _protocol(body_limit_bytes(http.scope["path"]))
        self._raw: deque[bytes] = deque()
        self._raw_bytes = 0
        self._arrived = asyncio.Event()
        self._gone = False
        self._pinged = False
        self._idle = False  # nothing is answered
        self._pace: BodyPace | None = None  # of a message that is not whole
        self._fragments: list[bytes] = []
        self._frames = self._frame_bytes = 0  # since the last message
        self._memory = BodyMemory(http.services.bodies)
        self._messages: asyncio.Queue[WebSocketMessage | None] = asyncio.Queue(1)
        self._on_gone: Callable[[], object] | None = None
        self._ends_at_s = asyncio.get_running_loop().time() + MAX_AGE_S

    def data_received(self, data: bytes) -> None:
        """More bytes of the connection."""
        self._raw.append(data)
        self._raw_bytes += len(data)
        if self._raw_bytes > _MAX_RAW_BYTES:
            self._connection.flow.pause_reading()
        self._arrived.set()

    def connection_lost(self) -> None:
        """The connection is closed; the client no longer waits for an answer."""
        self._gone = True
        self._arrived.set()
        if self._on_gone is not None:
            self._on_gone()

    @contextmanager
    def answering(self, on_gone: Callable[[], object]) -> Iterator[None]:
        """Inside, on_gone is called when the client goes away."""
        self._on_gone = on_gone
        if self._gone:
            on_gone()
        try:
            yield
        finally:
            self._on_gone = None

    async def receive(self) -> WebSocketMessage | None:
        """The next message; None: the client has gone. The connection counts as idle meanwhile.
        Raises HttpError for one that has lasted too long, and where too many are answered."""
        if self._services.draining:
            return None
        self._connection.rest()
        self._idle = True
        try:
            async with asyncio.timeout_at(self._ends_at_s):
                message = await self._messages.get()
        except TimeoutError:
            raise HttpError(
                400,
                "websocket_connection_limit_reached",
                f"a connection lasts {MAX_AGE_S / 60:g} minutes at most: open a new one",
            ) from None
        finally:
            self._idle = False
        if message is not None and not self._connection.work():
            message.release()
            raise HttpError(503, "overloaded", "too many requests are in progress: try again later")
        return message

    async def send(self, data: bytes) -> None:
        """Send a text in UTF-8. Waits while the client does not read. Raises ClientDisconnected."""
        if self._gone or self._protocol.state.name != "OPEN":
            raise ClientDisconnected
        self._protocol.send_text(data)
        for part in self._protocol.data_to_send():
            await self._connection.send(part)

    def leave(self) -> None:
        """The daemon is stopping: close, unless something is being answered."""
        if self._idle:
            self.close(_GOING_AWAY)

    def close(self, code: int, reason: str = "") -> None:
        """Say so and close."""
        if self._gone:
            return
        if self._protocol.state.name == "OPEN":
            self._protocol.send_close(code, reason)
        self._flush()
        self._connection.finish()
        self.connection_lost()

    async def read(self) -> None:
        """Read messages until the connection ends, or its client does what no client may."""
        code, reason = _DONE, ""
        try:
            while data := await self._next_bytes():
                self._protocol.receive_data(data)
                self._flush()
                for frame in self._protocol.events_received():
                    await self._take(cast("Frame", frame))  # its heads are not read by it
                self._check()
                if self._protocol.close_expected():
                    break
                await asyncio.sleep(0)
        except HttpError as error:
            code, reason = error.status, error.message
        self._memory.hold(0)
        self.close(_CLOSE_CODES.get(code, _POLICY), reason[:100])
        await self._messages.put(None)

    async def _take(self, frame: Frame) -> None:
        self._frames += 1
        self._frame_bytes += len(frame.data)
        kind = frame.opcode.name
        if kind == "BINARY":
            raise HttpError(415, "unsupported_media_type", "send text messages")
        if kind not in ("TEXT", "CONT"):
            return
        self._fragments.append(bytes(frame.data))
        if frame.fin:
            message = WebSocketMessage(b"".join(self._fragments), self._memory)
            self._fragments.clear()
            self._frames = self._frame_bytes = 0
            self._memory = BodyMemory(self._services.bodies)
            await self._messages.put(message)

    def _check(self) -> None:
        """Raises HttpError for small frames without end, and where bodies have no memory."""
        if self._frames > MAX_FRAMES + self._frame_bytes // MIN_FRAME_BYTES:
            raise HttpError(400, "bad_request", "too many small frames")
        self._memory.hold(self._pending_bytes)

    @property
    def _pending_bytes(self) -> int:
        """Of a message that is not whole."""
        return len(self._protocol.reader.buffer) + sum(map(len, self._fragments))

    async def _next_bytes(self) -> bytes:
        """What is to be read next, a little at a time; empty: the connection is closed. Raises
        HttpError 408 for a message that comes too slowly, and for a client that is silent."""
        if self._pending_bytes:
            self._pace = self._pace or BodyPace(MAX_BODY_S)
            return bytes((await self._pace.receive(self._receive_raw))["body"])
        self._pace = None
        while True:
            try:
                async with asyncio.timeout(PING_S):
                    data = await self._take_raw()
            except TimeoutError:
                if self._pinged:
                    raise HttpError(408, "timeout", "no answer to a ping") from None
                self._pinged = True
                self._protocol.send_ping(b"")
                self._flush()
                continue
            self._pinged = False
            return data

    async def _receive_raw(self) -> Message:
        return {"type": "websocket.receive", "body": await self._take_raw()}

    async def _take_raw(self) -> bytes:
        while not self._raw:
            if self._gone:
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        data = self._raw.popleft()
        if len(data) > _STEP_BYTES:
            self._raw.appendleft(data[_STEP_BYTES:])
            data = data[:_STEP_BYTES]
        self._raw_bytes -= len(data)
        if self._raw_bytes <= _MAX_RAW_BYTES and not self._gone:
            self._connection.flow.resume_reading()
        return data

    def _flush(self) -> None:
        """Send what the protocol says by itself: pongs, and the end."""
        for part in self._protocol.data_to_send():
            if part and not self._gone:
                self._connection.transport.write(part)


_CLOSE_CODES: Final = {_DONE: _DONE, 415: _NO_TEXT, 503: _TRY_AGAIN}


def _protocol(max_bytes: int) -> Protocol:
    try:
        from websockets.protocol import SERVER, Protocol
    except ImportError:
        raise Unsupported(
            "WebSockets need the package websockets, which is not installed here; use POST"
        ) from None
    return Protocol(SERVER, max_size=max_bytes, logger=_quiet)


def _is_offered(http: HttpRequest, connection: ConnectionBounds) -> bool:
    return (
        http.scope["method"] == "GET"
        and http.scope["http_version"] == "1.1"
        and connection.upgrade == b"websocket"
        and http.headers.getlist("sec-websocket-version") == ["13"]
    )


def _handshake(key: str, request_id: str) -> bytes:
    """The head that accepts. Raises HttpError 400."""
    try:
        whole = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        whole = False
    if not whole:
        raise HttpError(400, "bad_request", f"Sec-WebSocket-Key is not 16 bytes: {key[:40]!r}")
    accept = base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest())
    head = (
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        f"sec-websocket-accept: {accept.decode()}\r\nx-request-id: {request_id}\r\n\r\n"
    )
    return head.encode()
