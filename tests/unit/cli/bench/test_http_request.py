"""Recording one request."""

from __future__ import annotations

import asyncio

import pytest

from cli.bench.http_request import ServerAddress, send_request


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("http://127.0.0.1:4327", ServerAddress("127.0.0.1", 4327)),
        ("http://example.org/models/", ServerAddress("example.org", 80, prefix="/models")),
        ("https://example.org", ServerAddress("example.org", 443, secure=True)),
        ("http://[::1]:1", ServerAddress("::1", 1)),
    ],
)
def test_a_base_url_names_the_server(url: str, server: ServerAddress) -> None:
    assert ServerAddress.at(url) == server


def test_a_request_is_complete_http() -> None:
    request = ServerAddress("::1", 1, prefix="/p").request("/v1/x", {"a": "é"})
    head, _, content = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /p/v1/x HTTP/1.1\r\nHost: [::1]:1\r\n")
    assert f"Content-Length: {len(content)}".encode() in head


async def test_arrivals_are_recorded_until_the_connection_ends() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(b"hello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        server = ServerAddress("127.0.0.1", listening.sockets[0].getsockname()[1])
        record = await send_request(server, server.request("/", {}))
    assert b"".join(data for _, data in record.arrivals) == b"hello"
    assert record.started_s <= record.arrivals[0][0] <= record.ended_s
    assert record.fault is None


async def test_a_server_that_never_ends_its_answer_is_a_fault() -> None:
    release = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        server = ServerAddress("127.0.0.1", listening.sockets[0].getsockname()[1])
        record = await send_request(server, server.request("/", {}), timeout_s=0.05)
        release.set()
    assert record.fault == "the response was not complete within 0.05 s"
