"""Spawns a worker process and keeps what it says on stderr. Knows nothing of frames.

The process gets one end of a socket pair, an environment of a few named variables, "/" as its
directory and nothing of the daemon's other files. It asks the kernel itself to die with the
daemon; the closed socket tells it so where the kernel cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Sequence

from runner.child_process import ExitStatus, StderrTail, child_options, exit_status


def worker_command(*arguments: str) -> list[str]:
    """The command line of a worker. -I: neither the user's site nor PYTHON* variables count."""
    return [sys.executable, "-I", "-m", "runner.worker", *arguments]


class WorkerProcess:
    """A running worker. Made by spawn."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._stderr = StderrTail(process)
        self._waiting = asyncio.create_task(process.wait())

    @classmethod
    async def spawn(cls, more: Sequence[socket.socket] = ()) -> tuple[WorkerProcess, socket.socket]:
        """The process and our end of its socket (non-blocking). more: sockets that it gets as well;
        they are closed here. Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            with contextlib.ExitStack() as opened:
                numbers = [opened.enter_context(each).fileno() for each in (theirs, *more)]
                process = await asyncio.create_subprocess_exec(
                    *worker_command(*map(str, numbers)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                    **child_options(),
                    pass_fds=numbers,
                )
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        return cls(process), ours

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def stderr_tail(self) -> str:
        """The last it wrote to stderr, for the log."""
        return self._stderr.text

    def kill(self) -> None:
        """Send SIGKILL; a process that has ended is left alone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self, timeout_s: float | None = None) -> ExitStatus:
        """How it ended. Still running after timeout_s: killed."""
        done, _ = await asyncio.wait({self._waiting}, timeout=timeout_s)
        if not done:
            self.kill()
        code = await asyncio.shield(self._waiting)
        await asyncio.wait({self._stderr.reading}, timeout=0.2)
        return exit_status(code)
