"""A connection before it speaks HTTP, for a daemon that has a certificate.

asyncio tells a protocol of its connection only after the handshake; until then it would be neither
counted nor closed for one that does more. Owns the handshake, in a place of the table like any idle
connection, and hands over to the protocol that follows.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

from uvicorn.protocols.utils import get_remote_addr

from runner.server.connection_table import ConnectionTable
from runner.server.rate_limits import client_at

HANDSHAKE_TIMEOUT_S = 10.0
_SHUTDOWN_TIMEOUT_S = 5.0  # for the client to say that it has closed its end too


class TlsHandshake(asyncio.Protocol):
    """Of one connection."""

    def __init__(
        self, table: ConnectionTable, context: ssl.SSLContext, following: asyncio.Protocol
    ) -> None:
        """following: has the connection once it is encrypted."""
        self.address = ""
        self._table = table
        self._context = context
        self._following = following
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None] | None = None
        self._received = bytearray()  # before there is someone to take it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is a place."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.address = client_at((get_remote_addr(self._transport) or ("",))[0])
        if not self._table.admit(self):
            self.drop()
            return
        self._transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._shake_hands())

    def data_received(self, data: bytes) -> None:
        """Keep it: what comes before the handshake began (uvloop does not pause), or with its last
        words."""
        self._received += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up."""
        if self._task is not None:
            self._task.cancel()

    def drop(self) -> None:
        """Close the connection."""
        self._transport.abort()

    def check(self, now_s: float) -> None:
        """The handshake has a time limit of its own."""

    async def _shake_hands(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(self._pass_on, self._take())  # start_tls takes the transport before
        try:
            encrypted = await loop.start_tls(
                self._transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
            )
        except OSError:  # no TLS, too slow, or gone
            return
        finally:
            self._table.leave(self)
        if encrypted is None or encrypted.is_closing():
            return
        encrypted.set_protocol(self._following)
        self._following.connection_made(encrypted)
        if early := self._take():
            self._following.data_received(early)

    def _take(self) -> bytes:
        received = bytes(self._received)
        self._received.clear()
        return received

    def _pass_on(self, received: bytes) -> None:
        """Give what came early to the handshake."""
        if received:
            decrypts = cast("asyncio.BufferedProtocol", self._transport.get_protocol())
            memoryview(decrypts.get_buffer(len(received)))[: len(received)] = received
            decrypts.buffer_updated(len(received))
