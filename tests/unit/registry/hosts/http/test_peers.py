"""Redirects to names that have another address at each look-up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from registry.errors import RemoteRefused
from registry.hosts.http import addresses, peers
from registry.hosts.http.client import ClientRequest, HttpClient

PUBLIC, PRIVATE = "127.0.0.2", "127.0.0.1"  # the first stands for an address of the internet
ELSEWHERE = "93.184.216.34"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """A resolver: the answers for each name, one after the other, the last one for ever."""
    answers: dict[str, list[str]] = {}

    async def resolve(self: Any, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        known = answers[host if isinstance(host, str) else bytes(host).decode()]
        address = known.pop(0) if len(known) > 1 else known[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    real = addresses.is_public
    for module in (addresses, peers):
        monkeypatch.setattr(module, "is_public", lambda text: text == PUBLIC or real(text))
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    return answers


class Server:
    """Answers each request with one text, and counts them."""

    def __init__(self) -> None:
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        self.requests = 0
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        try:
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET"):
                self.requests += 1
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def redirect(self, target: str) -> None:
        """Answer with a redirect from now on."""
        head = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"
        self.answer = head.encode()


@asynccontextmanager
async def server(address: str) -> AsyncIterator[Server]:
    served = Server()
    listening = await asyncio.start_server(served.serve, address, 0)
    served.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield served


async def fetched(url: str) -> bytes:
    async with HttpClient("hearth/test", insecure=True) as web:
        return (await web.fetch(ClientRequest("GET", httpx.URL(url)))).content


async def test_a_name_that_becomes_private_after_the_check_is_refused_before_a_request(
    names: dict[str, list[str]],
) -> None:
    async with server(PUBLIC) as public, server(PRIVATE) as private:
        names |= {"registry.test": [PUBLIC], "rebound.test": [ELSEWHERE, PRIVATE]}
        public.redirect(f"http://rebound.test:{private.port}/secret")
        with pytest.raises(RemoteRefused, match="address that is not public"):
            await fetched(f"http://registry.test:{public.port}/")
        assert (public.requests, private.connections) == (1, 0)


async def test_a_source_that_calls_itself_private_afterwards_is_still_public(
    names: dict[str, list[str]],
) -> None:
    async with server(PUBLIC) as public, server(PRIVATE) as private:
        names |= {"registry.test": [PUBLIC, PRIVATE], "inside.test": [PRIVATE]}
        public.redirect(f"http://inside.test:{private.port}/secret")
        with pytest.raises(RemoteRefused, match="address that is not public"):
            await fetched(f"http://registry.test:{public.port}/")
        assert private.connections == 0


async def test_a_public_name_may_be_led_to_and_a_private_one_may_lead_anywhere(
    names: dict[str, list[str]],
) -> None:
    async with server(PUBLIC) as public, server(PRIVATE) as private:
        names |= {"cdn.test": [PUBLIC], "lan.test": [PRIVATE], "other.test": [PRIVATE]}
        async with server(PUBLIC) as source:
            names["registry.test"] = [PUBLIC]
            source.redirect(f"http://cdn.test:{public.port}/")
            assert await fetched(f"http://registry.test:{source.port}/") == b"ok"
        async with server(PRIVATE) as source:
            source.redirect(f"http://other.test:{private.port}/")
            assert await fetched(f"http://lan.test:{source.port}/") == b"ok"


async def test_the_connection_of_a_proxy_says_nothing_of_the_host(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(PRIVATE) as proxy:
        names |= {"registry.test": [PUBLIC], "lan.test": [PRIVATE], "proxy.test": [PRIVATE]}
        monkeypatch.setenv("HTTP_PROXY", f"http://proxy.test:{proxy.port}")
        url = httpx.URL("http://registry.test:1/")
        async with HttpClient("hearth/test", insecure=True, private_hosts=()) as web:
            assert (await web.fetch(ClientRequest("GET", url))).content == b"ok"
            assert web._peers.is_private(url) is None
            with pytest.raises(RemoteRefused, match="is not at a public address"):
                await web.fetch(ClientRequest("GET", httpx.URL("http://lan.test:1/")))
        assert proxy.requests == 1


async def test_a_client_for_public_hosts_opens_no_connection_elsewhere(
    names: dict[str, list[str]],
) -> None:
    async with server(PUBLIC) as public, server(PRIVATE) as private:
        names |= {
            "registry.test": [PUBLIC],
            "lan.test": [PRIVATE],
            "both.test": [PUBLIC, PRIVATE],
            "rebound.test": [PUBLIC, PUBLIC, PRIVATE],
        }
        async with HttpClient("hearth/test", insecure=True, private_hosts=()) as web:
            url = httpx.URL(f"http://registry.test:{public.port}/")
            assert (await web.fetch(ClientRequest("GET", url))).content == b"ok"
            for name in ("lan.test", "both.test", "127.1", "2130706433", "0x7f000001"):
                names.setdefault(name, [PRIVATE])
                url = httpx.URL(f"http://{name}:{private.port}/")
                with pytest.raises(RemoteRefused, match="is not at a public address"):
                    await web.fetch(ClientRequest("GET", url))
            url = httpx.URL(f"http://rebound.test:{public.port}/")
            assert (await web.fetch(ClientRequest("GET", url))).content == b"ok"
        assert private.connections == 0


async def test_a_named_host_may_be_private_at_its_port_only(names: dict[str, list[str]]) -> None:
    async with server(PRIVATE) as wanted, server(PRIVATE) as other:
        names |= {"lan.test": [PRIVATE]}
        hosts = (f"LAN.test:{wanted.port}",)
        async with HttpClient("hearth/test", insecure=True, private_hosts=hosts) as web:
            url = httpx.URL(f"http://lan.test:{wanted.port}/")
            assert (await web.fetch(ClientRequest("GET", url))).content == b"ok"
            wanted.redirect(f"http://lan.test:{other.port}/secret")
            with pytest.raises(RemoteRefused, match="is not at a public address"):
                await web.fetch(ClientRequest("GET", url))
        assert other.connections == 0


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "0.0.0.0", "10.0.0.1", "169.254.169.254", "100.64.0.1", "192.168.0.1",
        "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "::ffff:127.0.0.1", "fe80::1%lo",
        "fc00::1", "ff02::1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::", "64:ff9b:1::7f00:1",
    ],
)  # fmt: skip
def test_an_address_within_is_not_public(address: str) -> None:
    assert not addresses.is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert addresses.is_public(address)
