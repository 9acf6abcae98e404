"""Starts daemons by fork: one process has imported all that they need, which takes half a second of
processor time, and each daemon is a child of it with an environment and a stderr of its own.

`python -P -m tests.fake_daemon FD` is that process; this module is what both sides know of it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, TextIO

EXECUTED = "EXECUTED"  # in a daemon's environment: see tests/forked_children.py
# Modules to preload. PyTorch takes 2 s; not for distillation, which sets variables that this import
# reads. MCP's SDK takes 1 s.
PYTORCH, MCP = "runner.backends.torch", "mcp.client.streamable_http"
_MAX_JOB_BYTES = 1 << 14


class DaemonProcess:
    """A daemon that was started by fork, with what tests use of subprocess.Popen."""

    def __init__(
        self,
        env: Mapping[str, str],
        max_files: int | None = None,
        worker: socket.socket | None = None,
        *,
        preloaded: str = "",
    ) -> None:
        """Start it. max_files: its hard limit of open files; None: our limits. worker: be a worker
        on this socket instead. preloaded: PYTORCH or MCP, if its children will need it."""
        said, stderr = os.pipe()
        files = (max_files, max_files) if max_files else resource.getrlimit(resource.RLIMIT_NOFILE)
        job = {"env": dict(env), "files": files}
        more = [] if worker is None else [worker.fileno()]
        try:
            self._status = begin(
                forker("tests.fake_daemon", *filter(None, [preloaded])), job, stderr, *more
            )
        finally:
            os.close(stderr)
        self.returncode: int | None = None
        self.stderr = os.fdopen(said, errors="replace")
        self.pid = int(self._status.readline())

    def poll(self) -> int | None:
        """The exit status, minus the signal that ended it; None: it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended. Raises subprocess.TimeoutExpired."""
        status = self._look(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("the daemon", timeout or 0)
        return status

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """What it says until it ends, which closes stderr. Raises subprocess.TimeoutExpired."""
        self.wait(timeout)  # it says less than a pipe holds
        with self.stderr:
            return None, self.stderr.read()

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode


def begin(to: socket.socket, job: Mapping[str, Any], stderr: int, *more: int) -> TextIO:
    """Have a forker start a child with these descriptors. Where its process id comes, and its
    status, a line each."""
    text = json.dumps(job).encode()
    assert len(text) <= _MAX_JOB_BYTES
    ended, status = os.pipe()
    try:
        socket.send_fds(to, [text], [stderr, status, *more])
    finally:
        os.close(status)
    return os.fdopen(ended)


@functools.cache
def forker(module: str, *preloaded: str) -> socket.socket:
    """The socket of this process's forker that runs that module, which ends with it. preloaded:
    further modules that it imports."""
    ours, theirs = socket.socketpair()
    keys = ("PATH", "LANG", "CUDA_VISIBLE_DEVICES")
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno()), *preloaded],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={key: os.environ[key] for key in keys if key in os.environ},
            cwd="/",
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class Forker:
    """The other side: forks a child for each job, and tells how it ends."""

    def __init__(self, fd: int) -> None:
        self._jobs = socket.socket(fileno=fd)
        self._status: dict[int, int] = {}  # of each child: where its pid and exit status go
        self.worker_fd: int | None = None  # in a child that is to be a worker: its socket
        self.words: list[str] = []  # in a child that is to be a command: its arguments

    def run(self) -> bool:
        """Fork until nobody can ask any more. True: this is a child, its environment is set."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        ended, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        os.set_blocking(ended, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        while True:
            ready = select.select([self._jobs, ended], [], [])[0]
            if ended in ready:
                os.read(ended, 4096)
                self._reap()
            if self._jobs in ready:
                job, fds, _, _ = socket.recv_fds(self._jobs, _MAX_JOB_BYTES, 4)
                if not job:
                    return False
                if self._fork(json.loads(job), *fds):
                    return True

    def _fork(self, job: Mapping[str, Any], stderr: int, status: int, *more: int) -> bool:
        pid = os.fork()
        if pid == 0:
            self._become(job, stderr, *more)
            return True
        for fd in (stderr, *more):
            os.close(fd)
        self._status[pid] = status
        os.write(status, b"%d\n" % pid)
        return False

    def _become(self, job: Mapping[str, Any], stderr: int, *more: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(stderr, 2)
        self._jobs.detach()
        first = 3
        if "words" in job:
            self.words = job["words"]
            for fd, stream in zip(more, (0, 1), strict=True):
                os.dup2(fd, stream)
            os.chdir(job["folder"])
        elif more:
            self.worker_fd = os.dup2(more[0], first)
            first += 1
        os.closerange(first, max(int(fd) for fd in os.listdir("/dev/fd")) + 1)
        os.environ.clear()
        os.environ.update(job["env"])
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(job["files"]))

    def _reap(self) -> None:
        while self._status:
            pid, how = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            status = self._status.pop(pid)
            with contextlib.suppress(BrokenPipeError):  # nobody wants to know
                os.write(status, b"%d\n" % os.waitstatus_to_exitcode(how))
            os.close(status)
