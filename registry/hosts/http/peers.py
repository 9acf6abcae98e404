"""At which addresses the connections of one client have ended, and where none may end.

A name can have another address at each look-up. So what counts is the address of the connection
itself, seen before a request goes over it. Knows no redirects. Connections through a proxy are
its own affair: it looks the names up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

from registry.errors import RemoteRefused, shown
from registry.hosts.http.addresses import is_public

Trace = Callable[[str, Mapping[str, Any]], Awaitable[None]]

_STARTED, _COMPLETE = "connection.connect_tcp.started", "connection.connect_tcp.complete"


class Peers:
    """The hosts that were reached, and those that were only named by a public host."""

    def __init__(self) -> None:
        self._public: set[str] = set()
        self._private: set[str] = set()
        self._guarded: set[str] = set()

    def guard(self, url: httpx.URL) -> None:
        """From now on no connection to url's host may end at an address that is not public."""
        self._guarded.add(_host(url))

    def is_private(self, url: httpx.URL) -> bool | None:
        """Whether url's host was reached, and at private addresses only; None when it was not
        reached directly."""
        host = _host(url)
        if host in self._public:
            return False
        return True if host in self._private else None

    def watch(self, url: httpx.URL) -> Trace:
        """httpcore's extension "trace" for a request to url: it raises RemoteRefused when a
        guarded host turns out to be at a private address."""
        host, target = _host(url), ""

        async def trace(event: str, info: Mapping[str, Any]) -> None:
            nonlocal target
            if event == _STARTED:
                target = str(info["host"])
            elif event == _COMPLETE and target == host:
                await self._connected(host, info["return_value"])

        return trace

    async def _connected(self, host: str, stream: Any) -> None:
        peer = stream.get_extra_info("server_addr")
        if peer is None or is_public(str(peer[0])):
            self._public.add(host)
            return
        self._private.add(host)
        if host in self._guarded:
            await stream.aclose()
            raise RemoteRefused(
                f"a redirect leads to {shown(host)}, which is at an address that is not public"
            )


def _host(url: httpx.URL) -> str:
    return url.raw_host.decode("ascii")
