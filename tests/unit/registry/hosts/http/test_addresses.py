from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from registry.errors import RemoteRefused
from registry.hosts.http.addresses import check_redirect, check_scheme, is_loopback

PUBLIC = "https://registry.example.com/v2/"
NAMES = {
    "registry.example.com": "93.184.216.34",
    "cdn.example.com": "93.184.216.35",
    "inside.example.com": "10.0.0.7",
    "lan.example.com": "192.168.1.9",
}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver with a few names."""

    async def resolve(self: Any, host: str, *_: Any, **__: Any) -> list[Any]:
        if host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (NAMES[host], 0))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)


@pytest.mark.parametrize(
    "target",
    [
        "https://inside.example.com/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://[::ffff:10.0.0.1]/x",
        "https://169.254.169.254/latest/meta-data",
        "https://10.1.2.3/x",
        "https://100.64.0.1/x",
        "https://0.0.0.0/x",
        "https://[fd00::1]/x",
    ],
)
async def test_a_public_host_must_not_lead_to_private_addresses(target: str) -> None:
    with pytest.raises(RemoteRefused, match="not public"):
        await check_redirect(httpx.URL(PUBLIC), httpx.URL(target), insecure=False)


@pytest.mark.parametrize("target", ["http://cdn.example.com/x", "ftp://cdn.example.com/x"])
@pytest.mark.parametrize("insecure", [False, True])
async def test_a_redirect_never_leaves_https(target: str, insecure: bool) -> None:
    with pytest.raises(RemoteRefused):
        await check_redirect(httpx.URL(PUBLIC), httpx.URL(target), insecure)


async def test_public_hosts_lead_to_public_ones_and_private_ones_anywhere() -> None:
    for source, target in (
        (PUBLIC, "https://cdn.example.com/x?signature=1"),
        (PUBLIC, "https://unknown.example.com/x"),
        ("https://lan.example.com/v2/", "https://inside.example.com/x"),
        ("http://127.0.0.1:5000/v2/", "http://127.0.0.1:5001/x"),
    ):
        await check_redirect(httpx.URL(source), httpx.URL(target), insecure=False)


def test_plain_http_is_for_loopback_or_the_insecure() -> None:
    check_scheme(httpx.URL("http://127.0.0.1:5000"), insecure=False)
    check_scheme(httpx.URL("http://example.com"), insecure=True)
    with pytest.raises(RemoteRefused, match="--insecure"):
        check_scheme(httpx.URL("http://example.com"), insecure=False)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("a.localhost", True),
        ("127.9.9.9", True),
        ("[::1]", True),
        ("127.0.0.1.example.com", False),
        ("localhost.example.com", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_is_told_by_name_and_address(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
