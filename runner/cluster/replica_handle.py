"""The daemon's end of a session with one replica: a worker handle whose process is elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from pathlib import Path

from runner.child_process import ExitStatus
from runner.models.supervisor import WorkerHandle
from runner.models.watchdog import Timeouts
from runner.models.worker_process import WorkerPeer
from runner.types import LoadPlan
from runner.worker.protocol import encode_frame

_LOST = ExitStatus(None, "its connection was lost")


class RemotePeer(WorkerPeer):
    """The bridge's end of the session's socket. gone: once the connection has ended."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.gone = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return None

    @property
    def stderr_tail(self) -> str:
        return ""

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def wait(self, timeout_s: float | None = None) -> ExitStatus:
        try:
            async with asyncio.timeout(timeout_s):
                await self.gone.wait()
        except TimeoutError:
            self.kill()
            await self.gone.wait()
        return _LOST


class ReplicaHandle(WorkerHandle):
    """A replica that has loaded its model. begin opens the session."""

    def __init__(
        self, name: str, plan: LoadPlan, timeouts: Timeouts, bridge: Path, app: str, replica: str
    ) -> None:
        """bridge: the bridge's socket. app, replica: Serve's names for them."""
        super().__init__(name, plan, timeouts)
        self.replica = replica
        self._bridge = bridge
        self._app = app

    async def _launch(self) -> tuple[WorkerPeer, socket.socket]:
        sock = _unix_socket()
        sock.setblocking(False)
        try:
            await self._loop.sock_connect(sock, str(self._bridge))
            hello = {"op": "session", "app": self._app, "replica": self.replica}
            await self._loop.sock_sendall(sock, encode_frame(hello))
        except BaseException:
            sock.close()
            raise
        return RemotePeer(sock), sock

    def _on_lost(self, fault: str | None) -> None:
        if isinstance(self._process, RemotePeer):
            self._process.gone.set()
        super()._on_lost(fault)


if sys.platform == "win32":

    def _unix_socket() -> socket.socket:
        raise OSError("a cluster needs Unix sockets, which Windows has not here")
else:

    def _unix_socket() -> socket.socket:
        return socket.socket(socket.AF_UNIX)
