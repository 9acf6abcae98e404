"""The sockets between daemon and worker, of both kinds: that for Windows runs everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.models import worker_process
from runner.models.supervisor import Timeouts, WorkerHandle
from runner.types import GenerateRequest, LoadPlan
from runner.worker import channels
from runner.worker.channels import Channels, InheritedSockets, LoopbackSockets
from tests.fake_daemon import fake_worker_command

SECRET = b"s" * 32
# Says on each socket which it is, then what came over it.
ECHO = """
import sys
from runner.worker.channels import opened
for index, each in enumerate(opened(sys.argv[1:])):
    each.sendall(b"%d:" % index + each.recv(100))
    each.close()
"""
PAUSE = "import signal; signal.pause()"

Make = Callable[[int], Channels]


async def started(opened: Channels, code: str = ECHO) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *opened.arguments, **opened.options
    )


def port_of(opened: Channels) -> int:
    return int(opened.arguments[0].partition(":")[2])


async def answers(ends: list[socket.socket]) -> list[bytes]:
    loop, found = asyncio.get_running_loop(), []
    for number, end in enumerate(ends):
        await loop.sock_sendall(end, b"%d" % number)
        found.append(await loop.sock_recv(end, 100))
        end.close()
    return found


async def closed_unanswered(connection: socket.socket) -> bool:
    """Whether the other side closes and has said nothing."""
    with contextlib.closing(connection):
        try:
            return await asyncio.get_running_loop().sock_recv(connection, 1) == b""
        except ConnectionResetError:
            return True


async def connected_to(port: int, said: bytes = b"") -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", port))
    await loop.sock_sendall(connection, said)
    return connection


@pytest.mark.parametrize("make", [InheritedSockets, LoopbackSockets])
async def test_each_socket_leads_to_its_counterpart(make: Make) -> None:
    with contextlib.closing(make(3)) as opened:
        process = await started(opened)
        ends = await opened.connect(process)
        assert await answers(ends) == [b"0:0", b"1:1", b"2:2"]
        assert await process.wait() == 0


async def test_strangers_who_connect_first_get_nothing_and_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some say nothing, some have another secret, one knows a proof of the other side."""
    monkeypatch.setattr(channels, "MAX_PROVING", 8)
    with contextlib.closing(LoopbackSockets(1, SECRET)) as opened:
        port = port_of(opened)
        silent = [await connected_to(port) for _ in range(20)]
        other = bytes([0]) + channels._proof(b"x" * 32, b"process", 0)
        reflected = bytes([0]) + channels._proof(SECRET, b"daemon", 0)
        wrong = [await connected_to(port, said) for said in (other, reflected, b"\xff" * 200)]
        process = await started(opened)
        ends = await opened.connect(process)
        assert await answers(ends) == [b"0:0"]
        for connection in silent + wrong:
            assert await closed_unanswered(connection)
        assert await process.wait() == 0


@pytest.mark.parametrize("index", [0, 1])
async def test_no_proof_is_taken_twice_nor_one_of_a_socket_that_was_not_asked_for(
    index: int,
) -> None:
    proof = bytes([index]) + channels._proof(SECRET, b"process", index)
    with contextlib.closing(LoopbackSockets(2, SECRET)) as opened:
        process = await started(opened, PAUSE)
        connecting = asyncio.create_task(opened.connect(process))
        first = await connected_to(port_of(opened), proof)
        reply = await asyncio.get_running_loop().sock_recv(first, 100)
        assert reply == channels._proof(SECRET, b"daemon", index)
        for wrong in (index, 2):
            said = bytes([wrong]) + channels._proof(SECRET, b"process", wrong)
            assert await closed_unanswered(await connected_to(port_of(opened), said))
        process.kill()
        with pytest.raises(ConnectionError, match="it ended"):
            await connecting
        first.close()


async def test_a_process_that_ends_before_it_connects_is_told_at_once() -> None:
    with contextlib.closing(LoopbackSockets(1)) as opened:
        process = await started(opened, "raise SystemExit(3)")
        with pytest.raises(ConnectionError, match="it ended"):
            await opened.connect(process)


async def test_the_time_to_connect_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "CONNECT_S", 0.05)
    with contextlib.closing(LoopbackSockets(1)) as opened:
        process = await started(opened, PAUSE)
        with pytest.raises(ConnectionError, match=r"0\.05 s have passed"):
            await opened.connect(process)
        process.kill()
        await process.wait()


async def test_a_program_that_is_not_the_daemon_is_not_spoken_to() -> None:
    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.readexactly(33)
        writer.write(said[1:])  # the only proof that it has seen
        writer.close()

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ECHO, f"port:{port}"),
            stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await process.communicate(SECRET)
    assert b"is not the daemon" in said


async def test_a_worker_serves_over_loopback_as_it_does_over_inherited_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "new_channels", LoopbackSockets)
    monkeypatch.setattr(worker_process, "worker_command", fake_worker_command)
    model = tmp_path / "model.gguf"
    model.write_bytes(b"")
    worker = await WorkerHandle.start("echo", LoadPlan(str(model), "echo", 64, 64, 1), Timeouts())
    try:
        generation = worker.generate([GenerateRequest(id="1", text="x")])
        done = []
        while not generation.done:
            done += [delta for _, delta in await generation.read()]
        assert done
    finally:
        await worker.close()
