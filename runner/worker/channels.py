"""The sockets between the daemon and a process that it starts.

On POSIX the process inherits one end of each pair. Windows passes none on in that way: there the
process connects to a port of loopback that is open for it alone and shows that it knows a secret
that it was told on stdin; the daemon shows the same. Others may connect to the port, and gain
nothing by it. Knows no frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final, Protocol

from runner.exclusive_port import own_port

CONNECT_S: Final = 60.0  # for Python to start, on a busy machine
PROOF_S: Final = 10.0  # for one connection to show that it is the process
MAX_PROVING: Final = 64  # connections; the oldest goes
_QUEUE: Final = 128
_SECRET_BYTES: Final = 32
_PROOF_BYTES: Final = 32  # SHA-256
_LOOPBACK: Final = "127.0.0.1"
_PORT: Final = "port:"


class Channels(Protocol):
    """So many sockets to one process, which is started with arguments and options, the process's
    own of asyncio.create_subprocess_exec."""

    arguments: Sequence[str]
    options: dict[str, Any]

    async def connect(self, process: asyncio.subprocess.Process) -> list[socket.socket]:
        """Our ends, non-blocking, once the process has been started. Raises OSError when it ends
        or does not connect."""

    def close(self) -> None:
        """Whatever came of it: close what is open here but our ends that connect gave."""


class InheritedSockets(Channels):
    """Pairs, of which the process gets the numbers."""

    def __init__(self, count: int) -> None:
        """Raises OSError."""
        self._opened = contextlib.ExitStack()
        with contextlib.ExitStack() as opened:
            pairs = [socket.socketpair() for _ in range(count)]
            for pair in pairs:
                for each in pair:
                    opened.enter_context(each)
            self._opened = opened.pop_all()
        self._ours = [ours for ours, _ in pairs]
        numbers = [theirs.fileno() for _, theirs in pairs]
        self.arguments = [str(number) for number in numbers]
        self.options = {"pass_fds": numbers, "stdin": asyncio.subprocess.DEVNULL}

    async def connect(self, process: asyncio.subprocess.Process) -> list[socket.socket]:
        kept = [socket.socket(fileno=ours.detach()) for ours in self._ours]
        for each in kept:
            each.setblocking(False)
        return kept

    def close(self) -> None:
        self._opened.close()


class LoopbackSockets(Channels):
    """Connections that the process makes. secret: 32 bytes that nobody else knows."""

    def __init__(self, count: int, secret: bytes | None = None) -> None:
        """Raises OSError."""
        self._count = count
        self._secret = secret or secrets.token_bytes(_SECRET_BYTES)
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._proving: list[asyncio.Task[None]] = []
        self._proven: dict[int, socket.socket] = {}
        try:
            own_port(self._listener)
            self._listener.bind((_LOOPBACK, 0))
            self._listener.listen(_QUEUE)
        except OSError:
            self._listener.close()
            raise
        self._listener.setblocking(False)
        self.arguments = [f"{_PORT}{self._listener.getsockname()[1]}"] * count
        self.options = {"stdin": asyncio.subprocess.PIPE}

    async def connect(self, process: asyncio.subprocess.Process) -> list[socket.socket]:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the wait tells
            process.stdin.write(self._secret)
            await process.stdin.drain()
        process.stdin.close()
        accepting = asyncio.create_task(self._accept())
        ended = asyncio.create_task(process.wait())
        try:
            await asyncio.wait(
                {accepting, ended}, timeout=CONNECT_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not accepting.done():
                how = "it ended" if ended.done() else f"{CONNECT_S:g} s have passed"
                raise ConnectionError(f"the process did not connect: {how}")
            accepting.result()
            found = [self._proven.pop(index) for index in range(self._count)]
        finally:
            for task in (accepting, ended):
                task.cancel()
            await asyncio.gather(accepting, ended, return_exceptions=True)
        return found

    async def _accept(self) -> None:
        """Until all have shown that they are the process's."""
        loop, complete = asyncio.get_running_loop(), asyncio.Event()
        waiting = asyncio.create_task(complete.wait())
        try:
            while not complete.is_set():
                next_one = asyncio.create_task(loop.sock_accept(self._listener))
                await asyncio.wait({next_one, waiting}, return_when=asyncio.FIRST_COMPLETED)
                if not next_one.done():
                    next_one.cancel()
                    await asyncio.gather(next_one, return_exceptions=True)
                    continue
                self._proving = [task for task in self._proving if not task.done()]
                if len(self._proving) >= MAX_PROVING:
                    self._proving[0].cancel()
                connection, _ = next_one.result()
                self._proving.append(asyncio.create_task(self._prove(connection, complete)))
        finally:
            waiting.cancel()
            for task in self._proving:
                task.cancel()
            await asyncio.gather(waiting, *self._proving, return_exceptions=True)

    async def _prove(self, connection: socket.socket, complete: asyncio.Event) -> None:
        loop, is_process = asyncio.get_running_loop(), False
        try:
            connection.setblocking(False)
            async with asyncio.timeout(PROOF_S):
                received = b""
                while len(received) <= _PROOF_BYTES:
                    part = await loop.sock_recv(connection, 1 + _PROOF_BYTES - len(received))
                    if not part:
                        return
                    received += part
                index, proof = received[0], received[1:]
                expected = _proof(self._secret, b"process", index)
                if not hmac.compare_digest(proof, expected):
                    return
                if index >= self._count or index in self._proven:
                    return
                await loop.sock_sendall(connection, _proof(self._secret, b"daemon", index))
            self._proven[index], is_process = connection, True
            if len(self._proven) == self._count:
                complete.set()
        except (OSError, TimeoutError):
            return
        finally:
            if not is_process:
                connection.close()

    def close(self) -> None:
        self._listener.close()
        for each in self._proven.values():
            each.close()


def new_channels(count: int) -> Channels:
    """As this platform has them. Raises OSError."""
    return LoopbackSockets(count) if sys.platform == "win32" else InheritedSockets(count)


def opened(words: Sequence[str]) -> list[socket.socket]:
    """The sockets of a process that was started with these arguments. Raises OSError, ValueError;
    ConnectionError when who listens at the port is not the daemon."""
    if not words or not words[0].startswith(_PORT):
        return [socket.socket(fileno=int(word)) for word in words]
    secret = sys.stdin.buffer.read(_SECRET_BYTES)
    found = [socket.create_connection((_LOOPBACK, int(word[len(_PORT) :]))) for word in words]
    for index, connection in enumerate(found):
        connection.sendall(bytes([index]) + _proof(secret, b"process", index))
        connection.settimeout(CONNECT_S)
        proof = b""
        while len(proof) < _PROOF_BYTES and (part := connection.recv(_PROOF_BYTES - len(proof))):
            proof += part
        connection.settimeout(None)
        if not hmac.compare_digest(proof, _proof(secret, b"daemon", index)):
            raise ConnectionError(f"the program at {words[index]} is not the daemon")
    return found


def _proof(secret: bytes, who: bytes, index: int) -> bytes:
    """What only who knows the secret can say of a connection."""
    return hmac.digest(secret, b"hearth %b %d" % (who, index), "sha256")
