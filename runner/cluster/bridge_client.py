"""The daemon's bridge: starts the process, asks it, hears from it, notices its end.

Knows no Ray. What a deployment is, cluster.py knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from runner.child_process import StderrTail
from runner.errors import CapacityError, HearthError, from_wire
from runner.models.connection import FrameConnection

START_S: Final = 180.0  # Ray takes some seconds on an idle machine, Serve as many the first time
_END_S: Final = 5.0
OnReplicas = Callable[[str, frozenset[str]], None]


class BridgeClient:
    """A running bridge. Made by start."""

    def __init__(self, folder: Path, on_replicas: OnReplicas, on_lost: Callable[[], None]) -> None:
        self.path = folder / "bridge.sock"
        self._folder = folder
        self._on_replicas = on_replicas
        self._on_lost = on_lost
        self._ids = itertools.count(1)
        self._calls: dict[str, asyncio.Future[Any]] = {}
        self._connection = FrameConnection(self._on_frame, self._on_end)
        self._process: asyncio.subprocess.Process
        self._stderr: StderrTail
        self.lost = False

    @classmethod
    async def start(
        cls, environment: Mapping[str, str], on_replicas: OnReplicas, on_lost: Callable[[], None]
    ) -> BridgeClient:
        """A bridge that is connected to Ray. Raises CapacityError with what it says."""
        folder = Path(tempfile.mkdtemp(prefix="hearth-"))  # for this user only; paths are short
        client = cls(folder, on_replicas, on_lost)
        try:
            await client._start(environment)
        except BaseException:
            await client.close()
            raise
        return client

    async def _start(self, environment: Mapping[str, str]) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "runner.cluster.bridge", str(self.path)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._stderr = StderrTail(self._process)
        assert self._process.stdout is not None
        ready = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                ready = await self._process.stdout.readline()
        if ready.strip() != b"ready":
            await asyncio.wait({self._stderr.reading}, timeout=0.5)
            said = self._stderr.text.splitlines()[-1:] or ["no answer from Ray"]
            raise CapacityError(f"the cluster cannot be reached: {said[0]}", retry_after_s=10)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._connection, str(self.path))
        self._connection.send({"op": "control"})

    async def call(self, op: str, **values: Any) -> Any:
        """The answer of the bridge. Raises what it reports, CapacityError when it is lost."""
        if self.lost:
            raise _gone()
        ident = str(next(self._ids))
        future = self._calls[ident] = asyncio.get_running_loop().create_future()
        try:
            self._connection.send({"op": op, "id": ident, **values})
            return await future
        finally:
            self._calls.pop(ident, None)

    async def close(self) -> None:
        """End it."""
        self.lost = True
        self._connection.close()
        if hasattr(self, "_process"):
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                async with asyncio.timeout(_END_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
            self._folder.rmdir()

    def _on_frame(self, frame: dict[str, Any]) -> None:
        if frame["op"] == "replicas":
            self._on_replicas(str(frame["app"]), frozenset(map(str, frame["replicas"])))
            return
        future = self._calls.pop(frame["id"], None)
        if future is None or future.done():
            return
        if frame["op"] == "reply":
            future.set_result(frame["result"])
        else:
            future.set_exception(from_wire(frame["error"]))

    def _on_end(self, _fault: str | None) -> None:
        was_lost, self.lost = self.lost, True
        for future in self._calls.values():
            if not future.done():
                future.set_exception(_gone())
        if not was_lost:
            self._on_lost()


def _gone() -> HearthError:
    return CapacityError("the connection to the cluster was lost; try again", retry_after_s=5)
