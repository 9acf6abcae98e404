"""One client's connection: its time limits, and the check that its bytes are requests.

A client has HEADER_TIMEOUT_S for the head of each request and WRITE_TIMEOUT_S to read some of what
waits for it. If it sends anything but a request, it gets an error and the connection is closed.
Requests reach uvicorn one at a time, and only as far as framing.py accepts them. Owns this on top
of uvicorn's protocol; connection_table owns which connections may exist, and http_request the pace
of a body.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any, Protocol

from pydantic_core import to_json
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from runner.server.connection_table import ALWAYS_SERVED, ConnectionTable
from runner.server.framing import FramingError, RequestFraming
from runner.server.peer import STATE, Peer
from runner.server.rate_limits import client_at
from runner.server.sockets import UNSENT_BYTES

log = logging.getLogger("hearth.http")

HEADER_TIMEOUT_S = 15.0
WRITE_TIMEOUT_S = 60.0  # a client reads MIN_READ_BYTES in it, or it is gone
MIN_READ_BYTES = 16 * 1024
LINGER_S = 5.0  # for a client to notice that it was answered and shall stop sending
MAX_WAITING_BYTES = 64 * 1024  # of later requests while one is answered; then nothing more is read
_AT_ONCE = tuple(b"GET %s " % path for path in ALWAYS_SERVED)


CONNECTION = "connection"  # the name under which it is in its requests' scope["state"]


class Receiver(Protocol):
    """Receives a connection's bytes once they are no longer HTTP."""

    def data_received(self, data: bytes) -> None:
        """More of them."""

    def connection_lost(self) -> None:
        """There are no more."""


class ConnectionBounds(asyncio.Protocol):
    """To be put before one of uvicorn's protocols."""

    transport: asyncio.Transport
    app_state: dict[str, Any]
    scope: dict[str, Any]
    cycle: Any
    flow: Any
    client: tuple[str, int] | None

    def __init__(self, table: ConnectionTable, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.address = ""
        self._table = table
        self._framing = RequestFraming()
        self._buffer = bytearray()
        self._refused = self._read_paused = self._waits_for_turn = False
        self._receiver: Receiver | None = None
        self._deadline_s: float | None = None  # for what the client has to do next
        self._unsent_bytes = 0  # at the beginning of the time to read some of it
        self._unsent_until_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time for the first head, or refuse."""
        self.app_state = {**self.app_state, STATE: Peer(transport), CONNECTION: self}
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self.address = client_at((self.client or ("",))[0])
        if self._table.admit(self):
            self._expect(HEADER_TIMEOUT_S)
        else:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room. What refers to the connection and lasts with it is let go, so that nothing
        waits for a collection of garbage: 600 connections did, at 64 clients."""
        self._table.leave(self)
        if self._receiver is not None:
            self._receiver.connection_lost()
        super().connection_lost(exc)
        self._receiver = self.cycle = None
        self.app_state = self.scope = {}

    def data_received(self, data: bytes) -> None:
        """Pass on what is a request."""
        if self._refused:
            return
        if self._receiver is not None:
            self._receiver.data_received(data)
            return
        self._buffer += data
        self._take_up()
        if self._waits_for_turn or self._has_enough:
            self._read_paused = True
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has read enough."""
        self._unsent_bytes = 0
        super().resume_writing()

    def on_response_complete(self) -> None:
        """uvicorn has sent a response."""
        super().on_response_complete()  # type: ignore[misc]
        self._table.end(self)
        if not self._framing.done:
            self._expect(LINGER_S)  # the rest of a body that nobody wanted
        if self._buffer:
            self._take_up()
        self._read_on()

    @property
    def upgrade(self) -> bytes:
        """The protocol that the request offers to go on in; empty: none."""
        fields = self._framing.fields
        options = [option.strip().lower() for name, value in fields if name == b"connection"
                   for option in value.split(b",")]  # fmt: skip
        offered = [value.lower() for name, value in fields if name == b"upgrade"]
        return offered[0] if b"upgrade" in options and len(offered) == 1 else b""

    def take_over(self, receiver: Receiver) -> None:
        """The request is answered by another protocol, which has all that comes from now on, and
        closes the transport when it ends."""
        self._receiver = receiver
        self.cycle.disconnected = True  # uvicorn sends nothing
        early = bytes(self._buffer)
        self._buffer.clear()
        if self._read_paused:
            self._read_paused = False
            self.transport.resume_reading()
        if early:
            receiver.data_received(early)

    def rest(self) -> None:
        """Nothing is to be answered: the connection counts as idle."""
        self._table.end(self)

    def work(self) -> bool:
        """Something is to be answered. False: there is no place for it."""
        return self._table.begin(self, self._framing.path, self._framing.fields)

    async def send(self, data: bytes) -> None:
        """Send after take_over. Waits while the client does not read."""
        if self.flow.write_paused:
            await self.flow.drain()
        self.transport.write(data)

    def finish(self) -> None:
        """Close the connection after take_over, once the client has what was sent."""
        if not self.transport.is_closing():
            self._refused = True
            self._end()

    def drop(self) -> None:
        """Close the connection; what the client has not read is lost."""
        self.transport.abort()

    def check(self, now_s: float) -> None:
        """Close the connection if the client has had its time."""
        is_late = self._deadline_s is not None and now_s > self._deadline_s
        if is_late and not self._waits_for_turn:
            self.drop()
            return
        unsent_bytes = self.transport.get_write_buffer_size()
        read_bytes = self._unsent_bytes - unsent_bytes
        if not self._unsent_bytes or not unsent_bytes or read_bytes >= MIN_READ_BYTES:
            self._unsent_bytes = unsent_bytes
            self._unsent_until_s = now_s + WRITE_TIMEOUT_S
        elif now_s > self._unsent_until_s:
            log.info("%s read %d bytes of its response in %g s, less than %d: closed",
                     self.address, read_bytes, WRITE_TIMEOUT_S, MIN_READ_BYTES)  # fmt: skip
            self.drop()

    @property
    def _has_enough(self) -> bool:
        return self._framing.done and len(self._buffer) > MAX_WAITING_BYTES

    def _take_up(self) -> None:
        """Go on with what has come, now or when its turn comes."""
        if self._waits_for_turn:
            return
        if self._table.turns.take() or self._buffer.startswith(_AT_ONCE):
            self._advance()
        elif self._table.await_turn(self, self._go_on):
            self._waits_for_turn = True
        else:
            self._advance()

    def _go_on(self) -> None:
        self._waits_for_turn = False
        if not self.transport.is_closing():
            self._advance()
            if not self._answering:  # it was no whole head, or the rest of an unwanted body
                self._table.end(self)
            self._read_on()

    def _read_on(self) -> None:
        """Read again, unless something still speaks against it."""
        if not self._read_paused or self._waits_for_turn or self._has_enough:
            return
        self._read_paused = False
        if not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _advance(self) -> None:
        """Pass on what has come of the current request, and of the next ones once that is
        answered."""
        while self._buffer and not self._refused and not self.transport.is_closing():
            if self._framing.done:
                if self._answering:
                    return
                self._framing = RequestFraming()
            framing, is_new = self._framing, not self._framing.has_head
            if is_new and self._deadline_s is None:
                self._expect(HEADER_TIMEOUT_S)
            try:
                data = framing.take(self._buffer)
            except FramingError as error:
                self._refuse(error.status, "bad_request", error.message)
                return
            if is_new and framing.has_head and not self._begin():
                return
            if framing.done and not self._answering:
                self._deadline_s = None  # of the rest of a body that nobody wanted
            if not data:
                return
            super().data_received(data)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _begin(self) -> bool:
        """The head of a request is whole. False: there is no place for it."""
        self._deadline_s = None
        if self._table.begin(self, self._framing.path.partition(b"?")[0], self._framing.fields):
            return True
        message = "too many requests are in progress: try again later"
        self._refuse(503, "too_many_requests_in_progress", message)
        return False

    def _expect(self, within_s: float) -> None:
        self._deadline_s = asyncio.get_running_loop().time() + within_s

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer what is no request, unless an answer has begun, and close the connection."""
        log.warning("refused a request of %s with %d", self.address, status)
        log.debug("refused a request of %s: %s", self.address, message)
        self._refused = True
        self._buffer.clear()
        begun = self._answering and self.cycle.response_started
        if self._answering:  # its body is what cannot be read
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.flow.resume_writing()
        if not begun:
            self.transport.write(_response(status, code, message))
        self._end(at_once=begun)

    def _end(self, *, at_once: bool = False) -> None:
        """Send nothing more, and read nothing more of what comes."""
        self._table.end(self)
        self._expect(LINGER_S)
        if at_once or not self.transport.can_write_eof():
            self.transport.close()
            return
        try:  # an unread rest would take what was sent away from the client
            self.transport.write_eof()
        except OSError:  # it has gone
            self.drop()
            return
        self.flow.resume_reading()


class BoundedProtocol(ConnectionBounds, AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """With the parser that is installed."""


def _response(status: int, code: str, message: str) -> bytes:
    body = to_json({"error": message, "code": code})
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
