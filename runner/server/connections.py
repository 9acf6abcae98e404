"""Connections of clients that say too little or come in too great numbers.

A connection has HEADER_TIMEOUT_S for the head of each request, so that a client that sends a byte
a minute holds nothing; beyond MAX_CONNECTIONS new ones are closed at once. Owns this on top of
uvicorn's protocol; bodies and slow readers are bounded in http_request and stream.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from runner.server.peer import STATE, Peer
from runner.server.sockets import UNSENT_BYTES

log = logging.getLogger("hearth.http")

HEADER_TIMEOUT_S = 15.0
MAX_CONNECTIONS = 4096


class BoundedProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """uvicorn's protocol with the two bounds."""

    transport: asyncio.Transport
    app_state: dict[str, Any]
    connections: set[Any]
    cycle: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the time for the first head, or refuse."""
        self.app_state = {**self.app_state, STATE: Peer(transport)}
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        if len(self.connections) > MAX_CONNECTIONS:
            log.warning("more than %d connections: refusing another one", MAX_CONNECTIONS)
            transport.abort()
            return
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        """Stop the time when a head is complete; start it with the first bytes of the next."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_deadline()
        elif self._idle() and self._deadline is None:
            self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        self._stop_deadline()
        super().connection_lost(exc)

    def _idle(self) -> bool:
        """No request is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _start_deadline(self) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(HEADER_TIMEOUT_S, self._close_late)

    def _stop_deadline(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _close_late(self) -> None:
        self._deadline = None
        if self._idle():
            self.transport.abort()
