"""A connection before it speaks HTTP, for a daemon that has a certificate.

asyncio tells a protocol of its connection only after the handshake; until then it would be neither
counted nor closed for one that does more. Owns the handshake, in a place of the table like any idle
connection, and hands over to the protocol that follows.
"""

from __future__ import annotations

import asyncio
import ssl

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
        self._task: asyncio.Task[None]
        self._early = bytearray()  # what came with the last words of the handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is a place."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = client_at((get_remote_addr(transport) or ("",))[0])
        if not self._table.admit(self):
            self.drop()
            return
        transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._shake_hands())

    def data_received(self, data: bytes) -> None:
        """Keep it for the protocol that follows."""
        self._early += data

    def drop(self) -> None:
        """Close the connection."""
        self._transport.abort()

    def check(self, now_s: float) -> None:
        """The handshake has a time limit of its own."""

    async def _shake_hands(self) -> None:
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
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
        if self._early:
            self._following.data_received(bytes(self._early))
