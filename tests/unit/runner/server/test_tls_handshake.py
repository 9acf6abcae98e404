"""What a connection does before it is encrypted, against a real server on loopback."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import pytest

from runner.server import tls_handshake
from runner.server.connection_table import ConnectionTable
from runner.server.tls_handshake import TlsHandshake
from tests.integration.test_tls import Pem, certificate

PLACES = 4


class Echo(asyncio.Protocol):
    """Says what it hears."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@pytest.fixture
def table() -> ConnectionTable:
    return ConnectionTable(PLACES)


@pytest.fixture
def made(tmp_path: Path) -> Pem:
    return certificate(tmp_path / "pem")


@pytest.fixture
def trusted(made: Pem) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(made.certificate))


@asynccontextmanager
async def serving(table: ConnectionTable, made: Pem) -> AsyncIterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    server = await asyncio.get_running_loop().create_server(
        lambda: TlsHandshake(table, context, Echo()), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
async def port(table: ConnectionTable, made: Pem) -> AsyncIterator[int]:
    async with serving(table, made) as number:
        yield number


async def says_nothing(reader: asyncio.StreamReader) -> bool:
    """Wait until the server closes the connection."""
    with suppress(ConnectionResetError):
        return await reader.read() == b""
    return True


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_a_handshake_that_does_not_end_is_closed_and_gives_up_its_place(
    port: int, table: ConnectionTable, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_handshake, "HANDSHAKE_TIMEOUT_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    assert await says_nothing(reader)
    assert len(table) == 0
    writer.close()


async def test_what_is_no_tls_is_closed(port: int, table: ConnectionTable) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await reader.read()
    assert len(table) == 0
    writer.close()


async def test_a_client_that_leaves_during_its_handshake_gives_up_its_place(
    port: int, table: ConnectionTable
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x16\x03\x01\x02\x00\x01")
    writer.write_eof()
    assert await says_nothing(reader)
    assert len(table) == 0
    writer.close()


async def test_the_oldest_handshake_makes_room(
    port: int, table: ConnectionTable, trusted: ssl.SSLContext
) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * PLACES)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    for closed, _ in silent[: PLACES + 1]:
        assert await says_nothing(closed)
    for _, other in [*silent, (reader, writer)]:
        other.close()


async def test_words_that_come_with_the_end_of_the_handshake_are_heard(
    port: int, trusted: ssl.SSLContext
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusted.wrap_bio(received, sent, server_hostname="127.0.0.1")
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(sent.read())
            received.write(await reader.read(1 << 16))
    client.write(b"hello")
    writer.write(sent.read())
    heard = b""
    while len(heard) < 5:
        with suppress(ssl.SSLWantReadError):
            heard += client.read(5)
            continue
        received.write(await reader.read(1 << 16))
    assert heard == b"hello"
    writer.close()


def test_the_same_on_the_loop_of_the_fast_extra(
    table: ConnectionTable, made: Pem, trusted: ssl.SSLContext
) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def handshakes() -> None:
        async with serving(table, made) as number:
            await test_the_oldest_handshake_makes_room(number, table, trusted)
            await test_words_that_come_with_the_end_of_the_handshake_are_heard(number, trusted)

    uvloop.run(handshakes())
