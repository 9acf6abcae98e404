"""Registries that send a byte at a time, without an end, so that no connection is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from registry.errors import RemoteUnreachable
from registry.hosts.host import RetryLater
from registry.hosts.http import client as http_client
from registry.hosts.http.client import ClientRequest, HttpClient, open_range

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
TRICKLES = {"a head": b"HTTP/1.1 200 OK\r\nX: ", "a body": HEAD}


@asynccontextmanager
async def registry(first: bytes) -> AsyncIterator[httpx.URL]:
    """A server that answers first and then a byte every 10 ms."""

    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.01)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield httpx.URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v2/")
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("what", TRICKLES)
async def test_an_answer_has_its_time(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "ANSWER_S", 0.1)
    async with registry(TRICKLES[what]) as url, HttpClient("test", stall_s=0.1) as client:
        with pytest.raises(RemoteUnreachable, match="did not finish its answer within 0"):
            await asyncio.wait_for(client.fetch(ClientRequest("GET", url)), 60)


async def test_the_head_of_a_file_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "ANSWER_S", 0.1)
    async with registry(TRICKLES["a head"]) as url, HttpClient("test") as client:
        with pytest.raises(RetryLater, match="did not finish its answer within 0"):
            async with asyncio.timeout(60), open_range(client, ClientRequest("GET", url), 0, 9):
                raise AssertionError
