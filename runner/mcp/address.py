"""Where an MCP server may be that a request names, by the rules that downloads obey."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable
from urllib.parse import urlsplit

from runner.errors import InvalidRequest

_PORTS = {"http": 80, "https": 443}


async def check_url(url: str, private_hosts: Iterable[str] | None) -> bool:
    """Whether all connections to url's host have to end at public addresses. private_hosts: those
    that may be elsewhere, as host or host:port; None: all may. Raises InvalidRequest."""
    host, port, scheme = _place(url)
    await asyncio.to_thread(importlib.import_module, "registry.hosts.http.peers")  # takes httpx
    from registry.hosts.http.addresses import is_private
    from registry.hosts.http.peers import Peers

    may_be_private = Peers(private_hosts).may_be_private(host, port)
    at_private = await is_private(host)
    if at_private and not may_be_private:
        raise _refused(
            f"{host} is not at a public address; the daemon's own user and admin keys may use it, "
            f"others if HEARTH_PRIVATE_REGISTRIES names {host}:{port}"
        )
    if scheme == "http" and not at_private:
        raise _refused(f"{host} would be contacted over plain HTTP: use https")
    return not at_private


def _place(url: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise _refused("it is neither https nor http, or has a port that cannot be") from None
    if not parts.hostname or parts.fragment or not url.isascii() or not url.isprintable():
        raise _refused("it has no host, or a fragment, or characters that no URL has")
    if parts.username is not None or parts.password is not None:
        raise _refused("it has a user name or a password in it: use headers or authorization")
    return parts.hostname, port, parts.scheme


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest(f"server_url: {reason}", param="tools")
