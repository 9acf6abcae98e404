"""Bytes that two readers could take for different requests, over real sockets, with each of the
parsers that uvicorn has."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from runner.server.connection_table import ConnectionTable
from runner.server.connections import ConnectionBounds
from runner.server.framing import MAX_FIELDS, MAX_HEAD_BYTES
from tests.framing_cases import ACCEPTED, CHUNKED, GET, REFUSED_CHUNKS, REFUSED_HEADS, SMUGGLED

PARSERS = ["h11", "httptools"]
REFUSED = {**REFUSED_HEADS, **{name: CHUNKED + case for name, case in REFUSED_CHUNKS.items()}}


class Seen:
    """An application that answers each request with 200, and remembers it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        self.requests.append((scope["method"], scope["path"], body))
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


class H11(ConnectionBounds, H11Protocol):  # type: ignore[misc]
    """h11."""


def protocol_of(parser: str) -> Any:
    if parser == "h11":
        return H11
    if importlib.util.find_spec("httptools") is None:
        pytest.skip("httptools is not installed")
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    return type("HttpTools", (ConnectionBounds, HttpToolsProtocol), {})


@asynccontextmanager
async def server(parser: str, app: Any) -> AsyncIterator[int]:
    http: Any = functools.partial(protocol_of(parser), ConnectionTable())
    config = uvicorn.Config(app, port=0, http=http, lifespan="off", log_config=None, ws="none")
    running = uvicorn.Server(config)
    config.load()
    running.lifespan = config.lifespan_class(config)
    await running.startup()
    try:
        yield running.servers[0].sockets[0].getsockname()[1]
    finally:
        running.should_exit = True
        await running.shutdown()


async def exchange(port: int, sent: bytes, *, end: bool = False) -> bytes:
    """All that the server answers to sent, until it closes the connection. end: the client says
    that it sends nothing more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        if end:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()


@pytest.mark.parametrize("parser", PARSERS)
async def test_what_could_be_two_requests_is_refused_and_the_connection_closed(parser: str) -> None:
    assert len(REFUSED) >= 100
    wrong, app = [], Seen()
    async with server(parser, app) as port:
        for name, case in REFUSED.items():
            answer = await exchange(port, case + SMUGGLED)
            if not answer.startswith(b"HTTP/1.1 400 ") or answer.count(b"\r\n\r\n") != 1:
                wrong.append(f"{name}: {answer[:80]!r}")
    assert wrong == []
    assert app.requests == []


@pytest.mark.parametrize("parser", PARSERS)
async def test_requests_that_leave_no_doubt_are_read_alike(parser: str) -> None:
    app, wanted = Seen(), []
    async with server(parser, app) as port:
        for case, request in ACCEPTED.values():
            last = GET + b"Connection: close\r\n\r\n"
            answer = await exchange(port, case + last)
            assert answer.count(b"HTTP/1.1 200 ") == 2, (case, answer)
            wanted += [request, ("GET", "/", b"")]
    assert app.requests == wanted


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_refused_request_behind_a_good_one_leaves_the_good_ones_answer_whole(
    parser: str,
) -> None:
    app = Seen()
    async with server(parser, app) as port:
        answer = await exchange(port, GET + b"\r\n" + REFUSED_HEADS["length list"] + SMUGGLED)
    assert answer.count(b"HTTP/1.1 200 ") == 1
    assert answer.count(b"HTTP/1.1 400 ") == 1
    assert answer.index(b"200 OK") < answer.index(b"400 Bad Request")
    assert app.requests == [("GET", "/", b"")]


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (2 * MAX_HEAD_BYTES),
        b"GET /" + b"a" * (2 * MAX_HEAD_BYTES),
        GET + b"X: a\r\n" * (MAX_FIELDS + 1) + b"\r\n",
    ],
)
async def test_a_head_has_a_limit(parser: str, head: bytes) -> None:
    app = Seen()
    async with server(parser, app) as port:
        assert (await exchange(port, head)).startswith(b"HTTP/1.1 431 ")
    assert app.requests == []


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_client_that_expects_100_is_told_to_continue(parser: str) -> None:
    app = Seen()
    async with server(parser, app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        fields = b"Host: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        writer.write(b"POST / HTTP/1.1\r\n" + fields)
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).startswith(
            b"HTTP/1.1 100 "
        )
        writer.write(b"hello")
        assert b"HTTP/1.1 200 " in await asyncio.wait_for(reader.readuntil(b"ok"), 60)
        writer.close()
    assert app.requests == [("POST", "/", b"hello")]


@pytest.mark.parametrize("parser", PARSERS)
async def test_an_http_1_0_client_gets_one_answer(parser: str) -> None:
    app = Seen()
    async with server(parser, app) as port:
        asked = b"GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"
        answer = await exchange(port, asked + SMUGGLED)
    assert answer.count(b"HTTP/1.1 200 ") == 1
    assert app.requests == [("GET", "/", b"")]
