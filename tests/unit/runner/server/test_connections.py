"""Clients that say too little, or are too many, against a real server on loopback."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import socket
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn

from runner.server import connection_table, connections, request_turns
from runner.server.connection_table import ConnectionTable
from runner.server.connections import BoundedProtocol

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LARGE = 20_000_000  # more than the system takes by itself
WAITING = b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n"


BEGUN: list[str] = []  # the paths of requests, in the order of their beginning


async def app(scope: Any, receive: Any, send: Any) -> None:
    """/large: many megabytes. /wait: an answer once the client has left. Else: ok, whatever the
    body."""
    BEGUN.append(scope["path"])
    headers = [(b"content-length", b"2")]
    if scope["path"] == "/large":
        headers = [(b"content-length", b"%d" % LARGE)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while scope["path"] == "/wait" and (await receive())["type"] != "http.disconnect":
        pass
    body = bytes(LARGE) if scope["path"] == "/large" else b"ok"
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def begun() -> list[str]:
    BEGUN.clear()
    return BEGUN


@pytest.fixture
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ConnectionTable:
    monkeypatch.setattr(connection_table, "CHECK_S", 0.01)
    return ConnectionTable(getattr(request, "param", 8), lambda path, _: path == b"/health")


@pytest.fixture
async def port(table: ConnectionTable) -> AsyncIterator[int]:
    http: Any = functools.partial(BoundedProtocol, table)
    config = uvicorn.Config(app, port=0, http=http, lifespan="off", log_config=None)
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


@pytest.mark.parametrize("leaves", ["when asked", "at once", "by a reset"])
async def test_nothing_of_a_connection_stays_when_it_has_ended(
    port: int, leaves: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept in cycles until a collection of garbage takes 30 KiB each, and lies between what
    lasts."""
    made: list[weakref.ref[BoundedProtocol]] = []
    lost = asyncio.Event()

    real_made, real_lost = BoundedProtocol.connection_made, BoundedProtocol.connection_lost

    def connection_made(self: BoundedProtocol, transport: asyncio.BaseTransport) -> None:
        made.append(weakref.ref(self))
        real_made(self, transport)

    def connection_lost(self: BoundedProtocol, exc: Exception | None) -> None:
        real_lost(self, exc)
        lost.set()

    monkeypatch.setattr(BoundedProtocol, "connection_made", connection_made)
    monkeypatch.setattr(BoundedProtocol, "connection_lost", connection_lost)
    gc.collect()
    gc.disable()
    try:
        async with connected(port) as (reader, writer):
            writer.write(REQUEST if leaves == "when asked" else WAITING)
            if leaves == "when asked":
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            else:
                await reader.readuntil(b"\r\n\r\n")
            if leaves == "by a reset":
                writer.transport.abort()
        await lost.wait()
        for _ in range(20):  # what the loop and the request's task still hold
            await asyncio.sleep(0)
        assert [each() for each in made] == [None]
    finally:
        gc.enable()


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


async def test_beyond_the_limit_the_connection_idle_for_longest_makes_room(
    port: int, table: ConnectionTable
) -> None:
    async with AsyncExitStack() as opened:
        idle = [await opened.enter_async_context(connected(port)) for _ in range(8)]
        for reader, writer in [*idle[4:], *idle[:4]]:
            writer.write(REQUEST)
            await reader.readuntil(b"ok")
        for oldest in (4, 5):
            reader, writer = await opened.enter_async_context(connected(port))
            writer.write(REQUEST)
            await reader.readuntil(b"ok")
            assert await ended(idle[oldest][0])
        assert len(table) == 8
        reader, writer = idle[0]
        writer.write(REQUEST)
        assert await reader.readuntil(b"ok")


async def test_requests_in_progress_leave_a_place_for_some(port: int) -> None:
    async with AsyncExitStack() as opened:
        for _ in range(7):
            reader, writer = await opened.enter_async_context(connected(port))
            writer.write(WAITING)
            await reader.readuntil(b"\r\n\r\n")
        for _ in range(3):
            async with connected(port) as (reader, writer):
                writer.write(REQUEST)
                answer = await reader.read()
                assert answer.startswith(b"HTTP/1.1 503 ")
                assert b"try again later" in answer
            async with connected(port) as (reader, writer):
                writer.write(REQUEST.replace(b"GET /", b"GET /health"))
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_does_not_read_is_dropped(
    port: int, table: ConnectionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WRITE_TIMEOUT_S", 0.05)
    left = asyncio.Event()
    monkeypatch.setattr(table, "leave", lambda _: left.set())
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(REQUEST.replace(b"GET /", b"GET /large"))
        await asyncio.wait_for(left.wait(), 60)


async def test_a_client_that_reads_slowly_gets_everything(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WRITE_TIMEOUT_S", 1.0)
    monkeypatch.setattr(connections, "MIN_READ_BYTES", 1)
    async with connected(port) as (reader, writer):
        writer.write(REQUEST.replace(b"GET /", b"GET /large"))
        size = 0
        while size < LARGE:
            data = await reader.read(LARGE // 20)
            assert data, "the connection was closed"
            size += len(data)
            await asyncio.sleep(0.02)


async def test_the_rest_of_a_body_that_nobody_wanted_has_its_time(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LINGER_S", 0.05)
    async with connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n1234")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert await ended(reader)


async def test_the_rest_of_a_body_that_nobody_wanted_may_come(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n1234")
        await reader.readuntil(b"ok")
        writer.write(b"56789" + REQUEST)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")


async def test_requests_sent_together_are_answered_in_order(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(REQUEST * 500)
        for _ in range(500):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")


def send_at_once(port: int, requests: Sequence[bytes], opened: ExitStack) -> list[socket.socket]:
    """Each on a connection of its own, before the server sees any of them."""
    clients = []
    for request in requests:
        client = opened.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        client.sendall(request)
        clients.append(client)
    return clients


@pytest.mark.parametrize("table", [100], indirect=True)
async def test_health_is_answered_before_the_requests_that_came_at_once(
    port: int, begun: list[str]
) -> None:
    requests = [REQUEST.replace(b"/", b"/%d" % number, 1) for number in range(50)]
    with ExitStack() as opened:
        *others, last = send_at_once(
            port, [*requests, REQUEST.replace(b"/", b"/health", 1)], opened
        )
        assert (await asyncio.to_thread(last.recv, 12)) == b"HTTP/1.1 200"
        assert begun.index("/health") < 40
        for client in others:
            assert (await asyncio.to_thread(client.recv, 12)) == b"HTTP/1.1 200"
    assert [path for path in begun if path != "/health"] == [f"/{number}" for number in range(50)]


@pytest.mark.parametrize("table", [100], indirect=True)
async def test_what_a_client_sends_while_it_waits_for_its_turn_is_answered_in_order(
    port: int, begun: list[str]
) -> None:
    body = b"x" * 200_000
    post = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    with ExitStack() as opened:
        clients = send_at_once(port, [post + REQUEST.replace(b"/", b"/b", 1)] * 30, opened)
        for client in clients:
            found = b""
            while found.count(b"ok") < 2:
                found += await asyncio.to_thread(client.recv, 4096)
    assert Counter(begun) == {"/a": 30, "/b": 30}


async def test_a_head_that_stops_after_its_turn_is_idle_again(
    port: int, table: ConnectionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(request_turns, "MAX_TURNS", 1)
    with ExitStack() as opened:
        for client in send_at_once(port, [REQUEST[:10]] * 7, opened):
            with suppress(ConnectionResetError):
                assert await asyncio.to_thread(client.recv, 1) == b""
    assert len(table) == 0


async def test_a_client_that_goes_while_it_is_refused_is_no_fault(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: object) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "write_eof", gone)
    monkeypatch.setattr(request_turns, "MAX_TURNS", 1)
    bad = REQUEST.replace(b"host: x", b"host: x\r\nhost: y")
    with ExitStack() as opened:
        for client in send_at_once(port, [bad] * 5, opened):
            with suppress(ConnectionResetError):
                await asyncio.to_thread(client.recv, 999)
    assert faults == []
