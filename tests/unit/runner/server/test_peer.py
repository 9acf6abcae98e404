"""The client's end of a connection, over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest

from runner.server import peer
from runner.server.peer import Peer

Ends = tuple[Peer, socket.socket, asyncio.StreamWriter]


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    """The daemon's Peer of a connection, the client's socket, and the daemon's writer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
    _, writer = await asyncio.open_connection(sock=accepted)
    with client:
        yield Peer(writer.transport), client, writer
    writer.close()


@pytest.mark.parametrize("slow", [False, True])
async def test_a_client_is_known_as_long_as_its_connection(
    ends: Ends, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "is_slow", lambda: slow)
    asked: list[object] = []
    real = peer.connected_uid

    def count(*pair: peer.Endpoint) -> int | None:
        asked.append(pair)
        return real(*pair)

    monkeypatch.setattr(peer, "connected_uid", count)
    found, client, _ = ends
    assert found.is_loopback
    assert [await found.uid() for _ in range(3)] == [os.getuid()] * 3
    client.close()
    assert await found.uid() == os.getuid()  # it was its connection
    assert len(asked) == 1


async def test_a_client_that_has_left_is_nobody(ends: Ends) -> None:
    found, client, _ = ends
    client.close()
    assert await found.uid() is None


async def test_a_port_that_another_process_may_have_by_now_is_nobodys(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _, writer = ends
    monkeypatch.setattr(peer, "connected_uid", lambda *_: os.getuid())
    writer.transport.abort()
    await asyncio.sleep(0)  # it is closed with the next turn of the loop
    assert await found.uid() is None


async def test_what_could_not_be_told_is_asked_again(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _, _ = ends
    with monkeypatch.context() as patched:
        patched.setattr(peer, "connected_uid", lambda *_: None)  # no descriptor was left
        assert await found.uid() is None
    assert await found.uid() == os.getuid()


async def test_what_is_no_tcp_connection_is_nobodys() -> None:
    one, other = socket.socketpair()
    _, writer = await asyncio.open_unix_connection(sock=one)
    with other:
        found = Peer(writer.transport)
        assert await found.uid() is None
        assert not found.is_loopback
        writer.close()
        await writer.wait_closed()
