"""Spawns a worker process and keeps what it says on stderr. Knows nothing of frames.

The process gets its sockets, an environment of a few named variables, the root folder as its
directory and nothing of the daemon's other files. It asks the kernel itself to die with the
daemon; the closed socket tells it so where the kernel cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from runner.child_process import ExitStatus, StderrTail, child_options, exit_status
from runner.worker.channels import new_channels

Serve = Callable[[socket.socket], None]


def worker_command(*arguments: str) -> list[str]:
    """The command line of a worker. -I: neither the user's site nor PYTHON* variables count."""
    return [sys.executable, "-I", "-m", "runner.worker", *arguments]


class WorkerPeer(Protocol):
    """What is at the other end of a worker's socket."""

    @property
    def pid(self) -> int | None:
        """Its process id, where it runs on this machine."""

    @property
    def stderr_tail(self) -> str:
        """The last it wrote to stderr, for the log."""

    def kill(self) -> None:
        """End it at once; what has ended is left alone."""

    async def wait(self, timeout_s: float | None = None) -> ExitStatus:
        """How it ended. Still running after timeout_s: killed."""


class WorkerProcess(WorkerPeer):
    """A running worker. Made by spawn."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._stderr = StderrTail(process)
        self._waiting = asyncio.create_task(process.wait())

    @classmethod
    async def spawn(cls, more: Sequence[Serve] = ()) -> tuple[WorkerProcess, socket.socket]:
        """The process and our end of its socket (non-blocking). more: each gets our end of one
        more socket of the process, and closes it. Raises OSError; then no process is left."""
        with contextlib.closing(new_channels(1 + len(more))) as channels:
            program, *arguments = worker_command(*channels.arguments)
            process = await asyncio.create_subprocess_exec(
                program,
                *arguments,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                **child_options(),
                **channels.options,
            )
            spawned = cls(process)
            try:
                ours, *others = await channels.connect(process)
            except BaseException:
                spawned.kill()
                await asyncio.shield(spawned._waiting)
                raise
        for serve, end in zip(more, others, strict=True):
            end.setblocking(True)
            serve(end)
        return spawned, ours

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr_tail(self) -> str:
        return self._stderr.text

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self, timeout_s: float | None = None) -> ExitStatus:
        done, _ = await asyncio.wait({self._waiting}, timeout=timeout_s)
        if not done:
            self.kill()
        code = await asyncio.shield(self._waiting)
        await asyncio.wait({self._stderr.reading}, timeout=0.2)
        return exit_status(code)
