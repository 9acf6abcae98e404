"""Connections that end at public addresses only.

A name can have another address at each look-up: it is looked up once for each connection, which
goes to what was checked.
"""

from __future__ import annotations

from typing import Any

import httpcore2
import httpx2

from registry.hosts.http.addresses import addresses_of, is_public


def guard(transport: httpx2.AsyncHTTPTransport) -> None:
    """Let transport connect to public addresses only; others are a ConnectError."""
    # httpx2 has no parameter for it.
    transport._pool._network_backend = _PublicNetwork()


class _PublicNetwork(httpcore2.AnyIOBackend):
    """See httpcore2.AsyncNetworkBackend."""

    async def connect_tcp(self, host: str, *how: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
        try:
            addresses = await addresses_of(host)
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        if not addresses or not all(map(is_public, addresses)):
            raise httpcore2.ConnectError(f"{host} is not at a public address")
        return await super().connect_tcp(addresses[0], *how, **more)
