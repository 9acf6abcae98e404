"""Clients that say too little, or are too many, against a real server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn

from runner.server import connections
from runner.server.connections import BoundedProtocol

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    config = uvicorn.Config(app, port=0, http=BoundedProtocol, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await server.shutdown()


@asynccontextmanager
async def connected(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Wait until the server closes the connection."""
    with suppress(ConnectionResetError):
        return await reader.read() == b""
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n"])
async def test_a_head_that_does_not_come_closes_the_connection(
    port: int, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 0.05)
    async with connected(port) as (reader, writer):
        writer.write(sent)
        assert await ended(reader)


async def test_a_second_head_has_its_time_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(port) as (reader, writer):
        writer.write(REQUEST)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 0.05)
        writer.write(b"GET / HT")
        assert await ended(reader)


async def test_whole_requests_are_answered_one_after_the_other(port: int) -> None:
    async with connected(port) as (reader, writer):
        for _ in range(3):
            writer.write(REQUEST[:10])
            await writer.drain()
            writer.write(REQUEST[10:])
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")


async def test_one_connection_too_many_is_closed(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 1)
    async with connected(port) as (reader, writer):
        writer.write(REQUEST)
        await reader.readuntil(b"ok")
        async with connected(port) as (refused, _):
            assert await ended(refused)
