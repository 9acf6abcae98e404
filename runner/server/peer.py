"""The client's end of one connection: whether it is on this machine, and which user has it.

Asked when a request first needs to know, and kept as long as the connection. Knows no keys.
"""

from __future__ import annotations

import asyncio
import os
import socket

from runner.socket_owner import Endpoint, connected_uid, is_slow

STATE = "peer"  # the name under which a connection's Peer is in its requests' scope["state"]


class Peer:
    """The peer of one connection. Connections that are not TCP belong to nobody."""

    __slots__ = ("_transport", "_uid")

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._uid: int | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether it came over this machine's loopback."""
        ends = self._ends()
        return ends is not None and ends[0].address.is_loopback

    async def uid(self) -> int | None:
        """The user of this machine whose process it is; None for other machines, and if that is
        unknown."""
        if self._uid is None and (ends := self._ends()) is not None:
            ask = connected_uid
            uid = await asyncio.to_thread(ask, *ends) if is_slow() else ask(*ends)
            self._uid = uid if uid is not None and self._is_connected() else None
        return self._uid

    def _ends(self) -> tuple[Endpoint, Endpoint] | None:
        """The client's and the daemon's."""
        names = (self._transport.get_extra_info(name) for name in ("peername", "sockname"))
        try:
            client, daemon = (Endpoint.of(name) for name in names)
        except (ValueError, TypeError, LookupError):
            return None
        return client, daemon

    def _is_connected(self) -> bool:
        """Whether the connection lasts: its port may be another process's as soon as it has
        ended."""
        try:
            number = os.dup(self._transport.get_extra_info("socket").fileno())
            with socket.socket(fileno=number) as again:  # uvloop's own would say what it was
                again.getpeername()
        except (OSError, AttributeError):
            return False
        return True
