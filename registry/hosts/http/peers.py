"""Which addresses the connections of one client may reach, and which they have reached.

A name can resolve to another address at each lookup. So a host that must be public is resolved once
per connection, and the connection goes to the address that was checked. Knows no requests and no
redirects. A proxy resolves names itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from registry.errors import RemoteRefused, shown
from registry.hosts.http.addresses import addresses_of, is_public

_PORTS = (80, 443)


class Peers(httpcore.AsyncNetworkBackend):
    """The network of a client: the hosts that were reached, and those that must be public. Private
    hosts: those that alone may be at other addresses, as host or host:port; None: all may."""

    def __init__(self, private_hosts: Iterable[str] | None = None) -> None:
        self._network = httpcore.AnyIOBackend()
        self._named = None if private_hosts is None else _named(private_hosts)
        self._public: set[str] = set()
        self._private: set[str] = set()
        self._guarded: set[str] = set()

    def guard(self, url: httpx.URL) -> None:
        """From now on no connection to url's host may end at an address that is not public."""
        self._guarded.add(_host(url))

    def may_be_private(self, host: str, port: int) -> bool:
        """Whether the host may be at an address that is not public."""
        return self._named is None or (host.strip("[]").lower(), port) in self._named

    def is_private(self, url: httpx.URL) -> bool | None:
        """Whether url's host was reached, and at private addresses only; None when it was not
        reached directly."""
        host = _host(url)
        if host in self._public:
            return False
        return True if host in self._private else None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109, the name is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """See httpcore.AsyncNetworkBackend. Raises RemoteRefused for a host that must be public and
        is not, before anything is sent to it."""
        to, how = [host], (port, timeout, local_address, socket_options)
        if host in self._guarded or not self.may_be_private(host, port):
            to = await self._public_addresses(host, port)
        for address in to[:-1]:
            try:
                stream = await self._network.connect_tcp(address, *how)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
            break
        else:
            stream = await self._network.connect_tcp(to[-1], *how)
        peer = stream.get_extra_info("server_addr")
        reached = self._public if peer is None or is_public(str(peer[0])) else self._private
        reached.add(host)
        return stream

    async def sleep(self, seconds: float) -> None:
        """See httpcore.AsyncNetworkBackend."""
        await self._network.sleep(seconds)

    async def _public_addresses(self, host: str, port: int) -> list[str]:
        try:
            addresses = await addresses_of(host)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        if addresses and all(map(is_public, addresses)):
            return addresses
        if self.may_be_private(host, port):
            raise RemoteRefused(
                f"a redirect leads to {shown(host)}, which is at an address that is not public"
            )
        raise not_public(host, port)


def not_public(host: str, port: int) -> RemoteRefused:
    """The refusal of a host that only the daemon's own user may have asked."""
    return RemoteRefused(
        f"{shown(host)} is not at a public address; the daemon's own user and admin keys may pull "
        f"from it, others if HEARTH_PRIVATE_REGISTRIES names {shown(f'{host}:{port}')}"
    )


def _named(hosts: Iterable[str]) -> set[tuple[str, int]]:
    found = set()
    for text in hosts:
        with contextlib.suppress(ValueError):  # what is no host is the name of none
            parts = urlsplit(f"//{text}")
            ports = _PORTS if parts.port is None else (parts.port,)
            found |= {(str(parts.hostname), port) for port in ports}
    return found


def _host(url: httpx.URL) -> str:
    return url.raw_host.decode("ascii")
