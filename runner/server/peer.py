"""The client's end of one connection: whether it is on this machine, and which user has it.

Asked when a request first needs to know, and kept as long as the connection. Knows no keys.
"""

from __future__ import annotations

import asyncio

from runner.socket_owner import Endpoint, connected_uid, is_slow

STATE = "peer"  # the name under which a connection's Peer is in its requests' scope["state"]


class Peer:
    """Of one connection. Connections that are no TCP are nobody's."""

    __slots__ = ("_asked", "_ends", "_transport", "_uid")

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._uid: int | None = None
        self._asked = False
        names = (transport.get_extra_info(name) for name in ("peername", "sockname"))
        try:
            client, server = (Endpoint.of(name) for name in names)
        except (ValueError, TypeError, LookupError):
            self._ends, self._asked = None, True
        else:
            self._ends = (client, server)

    @property
    def is_loopback(self) -> bool:
        """Whether it came over this machine's loopback."""
        return self._ends is not None and self._ends[0].address.is_loopback

    async def uid(self) -> int | None:
        """The user of this machine whose process it is; None for other machines, and where that
        cannot be told."""
        if not self._asked and self._ends is not None:
            ask = connected_uid
            uid = await asyncio.to_thread(ask, *self._ends) if is_slow() else ask(*self._ends)
            self._uid = uid if self._is_connected() else None
            self._asked = True
        return self._uid

    def _is_connected(self) -> bool:
        """Whether the connection lasts: its port may be another process's as soon as it has
        ended."""
        try:
            self._transport.get_extra_info("socket").getpeername()
        except (OSError, AttributeError):
            return False
        return True
