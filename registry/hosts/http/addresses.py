"""Which URLs may be requested: schemes, and addresses that a public host must not lead to.

Owns the rules for plain http and for redirects. Sends nothing but DNS queries.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket

import httpx

from registry.errors import RemoteRefused, shown

_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052


def origin_of(url: httpx.URL) -> tuple[str, str, int]:
    """Scheme, host and port: what a credential is bound to."""
    return (url.scheme, url.host.lower(), url.port or _PORTS.get(url.scheme, 0))


def is_loopback(host: str) -> bool:
    """True for localhost and the addresses of this machine's loopback."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_scheme(url: httpx.URL, insecure: bool) -> None:
    """Raises RemoteRefused unless url is https, or http where that is allowed, with a host and a
    port that there can be."""
    if url.scheme == "https" or (url.scheme == "http" and (insecure or is_loopback(url.host))):
        _check_place(url)
        return
    if url.scheme == "http":
        raise RemoteRefused(
            f"{shown(url.host)} would be contacted over plain HTTP; allow it with --insecure"
        )
    raise RemoteRefused(f"{shown(str(url))} is neither https nor http")


def _check_place(url: httpx.URL) -> None:
    try:
        port = origin_of(url)[2] if url.port is None else url.port
    except ValueError:  # httpx looks at it when it is asked for
        port = 0
    if not url.host or not 0 < port < 65536:
        raise RemoteRefused(f"{shown(str(url))} has no host, or a port that cannot be")


async def check_redirect(
    source: httpx.URL, target: httpx.URL, insecure: bool, source_is_private: bool | None = None
) -> bool:
    """Whether target's connections have to be watched too, as source is public: another look-up
    may give another address. source_is_private: as its connections showed, None: look it up.

    Raises RemoteRefused when source must not send a request on to target: other schemes, a step
    down from https, and private addresses behind a public one.
    """
    check_scheme(target, insecure)
    if target.userinfo:
        raise RemoteRefused(f"{shown(source.host)} redirects to a URL with a password in it")
    if source.scheme == "https" and target.scheme != "https":
        raise RemoteRefused(f"{shown(source.host)} redirects from HTTPS to plain HTTP")
    if source.host == target.host:
        return False
    if source_is_private is None:
        source_is_private = await is_private(source.host)
    if not source_is_private and await is_private(target.host):
        raise RemoteRefused(
            f"{shown(source.host)} redirects to {shown(target.host)}, an address that is not public"
        )
    return not source_is_private


def is_public(address: str) -> bool:
    """Whether an IP address is on the public internet. An IPv6 address that embeds an IPv4 address,
    to which a translator forwards, counts as that address."""
    parsed = ipaddress.ip_address(address.split("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if parsed in _NAT64:
            inner = ipaddress.IPv4Address(parsed.packed[-4:])
        if inner is not None:
            parsed = inner
    return parsed.is_global and not (parsed.is_multicast or parsed.is_reserved)


async def addresses_of(host: str) -> list[str]:
    """All addresses of a host, itself when it is one. Raises OSError."""
    name = host.strip("[]")
    with contextlib.suppress(ValueError):
        return [str(ipaddress.ip_address(name))]
    answers = await asyncio.get_running_loop().getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


async def is_private(host: str) -> bool:
    """True when any address of host is not a public one. A name that cannot be resolved here is
    left to the request, which a proxy may resolve."""
    try:
        return not all(map(is_public, await addresses_of(host)))
    except OSError:
        return False
