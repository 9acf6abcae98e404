"""The other processes of a model that several compute: started, told, and watched by the first one,
which is the worker that the daemon knows. Those on other machines were started there, and are
connected to (rank_network.py).

They are one: if one ends or falls silent, all end, and the daemon starts the model again. Knows
processes and messages, not what is computed.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.connection import Pipe as new_pipe
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, NoReturn

from runner.backends.backend import Followers, Leader
from runner.child_process import child_options
from runner.errors import HearthError, ModelLoadFailed, WorkerCrashed, from_wire
from runner.types import LoadPlan
from runner.worker.json_codec import to_json
from runner.worker.passed_files import receive_with_file, send_with_file
from runner.worker.rank_network import RankNetwork, connected, listening

START_S: Final = 60.0  # for Python and PyTorch to start, on a busy machine
HEARTBEAT_S: Final = 0.25
SILENCE_S: Final = 1.25  # without a heartbeat: it hangs
VERDICT_S: Final = 0.5  # to see that another process is gone, where a step has failed for that
GPU_SILENCE_S: Final = 15.0  # kernels are compiled there meanwhile, by one thread
_LINUX_ONLY: Final = "models are computed by several processes on Linux only"
_WITH_FILE: Final = b"f"
_STORE: Final = "/proc/self/fd/{}"
TCP: Final = "tcp://"  # the processes meet at an address, and not by a file
RANK_COMMAND: Final = (sys.executable, "-I", "-m", "runner.worker.rank")


def backend_of(plan: LoadPlan) -> ModuleType:
    """The package that computes with several processes."""
    return importlib.import_module(f"runner.backends.{plan.backend}")


class RankProcesses(Followers):
    """The processes of a plan, but the first, which is this one."""

    def __init__(
        self,
        plan: LoadPlan,
        lost: Callable[[HearthError], NoReturn],
        network: RankNetwork | None = None,
    ) -> None:
        """lost: called, from any thread, when one of them is. network: where the others are; None:
        they are started on this machine."""
        self.joined: Any = None
        self._plan = plan
        self._network = network
        self._lost = lost
        self._watching = threading.Thread(target=self._watch, name="ranks", daemon=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []

    def join(self) -> None:
        """Start them, and meet them once they are of this version. To be called where Landlock
        confines this process and sockets can still be opened: processes that do not inherit its
        domain get no signal from it, not even the one that ends them with it. Raises
        ModelLoadFailed."""
        if self._network is not None:
            self._join_remote(self._network)
            return
        store = _new_file("hearth-ranks")
        try:
            for rank in range(1, self._plan.ranks):
                self._start(rank, store)
        except OSError as error:
            raise ModelLoadFailed(f"a process of the model could not be started: {error}") from None
        self._meet(_STORE.format(store))

    def _join_remote(self, network: RankNetwork) -> None:
        for host, port in network.addresses:
            try:
                connection = connected((host, port), network.key)
            except (OSError, EOFError) as error:
                raise ModelLoadFailed(
                    f"a process of the model does not answer at {host}:{port}: {error}"
                ) from None
            self._connections.append(connection)
            self._send_plan(connection)
        server = listening(network.host)
        address = f"{TCP}{network.host}:{server.getsockname()[1]}"
        self._meet(address, network.host, server.detach())

    def _meet(self, store: str, *network: Any) -> None:
        """network: what the backend's join takes besides."""
        backend = backend_of(self._plan)
        own = backend.version()
        for rank, hello in enumerate(self._replies(START_S), start=1):
            if hello["version"] != own:
                raise ModelLoadFailed(
                    f"process {rank} of the model is {hello['version']}, process 0 is {own}: end"
                    " the daemon and start it again"
                )
        for connection in self._connections:
            connection.send_bytes(store.encode())
        self.joined = backend.join(self._plan, 0, store, *network)

    def broadcast(self, message: bytes, file: Path | None = None) -> None:
        with ExitStack() as opened:
            content = None if file is None else opened.enter_context(file.open("rb"))
            for connection in self._connections:
                with suppress(BrokenPipeError, ConnectionResetError):  # watching tells
                    connection.send_bytes(message)
                    if content is not None:
                        send_file(connection, content, far=self._network is not None)

    def wait_loaded(self) -> None:
        """See Followers. From here on they are watched."""
        self._replies(None)
        self._watching.start()

    def abandon(self, reason: str) -> NoReturn:
        if self._watching.is_alive():
            self._watching.join(VERDICT_S)
        self._end(WorkerCrashed(f"{reason}; the model's {self._plan.ranks} processes start again"))

    def _start(self, rank: int, store: int) -> None:
        ours, theirs = _new_pipe()
        with theirs:
            process = subprocess.Popen(
                [*RANK_COMMAND, str(rank), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), store),
                **child_options(),
            )
        self._processes.append(process)
        self._connections.append(ours)
        self._send_plan(ours)

    def _send_plan(self, connection: Connection) -> None:
        connection.send_bytes(json.dumps(to_json(self._plan)).encode())

    def _replies(self, limit_s: float | None) -> list[dict[str, Any]]:
        """One of each process, by rank. Raises ModelLoadFailed: what it reports, or that it has
        ended or takes too long."""
        found: dict[int, dict[str, Any]] = {}
        deadline_s = None if limit_s is None else time.monotonic() + limit_s
        while len(found) < len(self._connections):
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            missing = [at for at in range(len(self._connections)) if at not in found]
            ready = wait([self._connections[at] for at in missing], left_s)
            if not ready:
                raise ModelLoadFailed(
                    f"process {missing[0] + 1} of {self._plan.ranks} of the model did not start"
                    f" within {limit_s:g} s"
                )
            for at in missing:
                if self._connections[at] in ready:
                    found[at] = self._reply(at)
        return [found[at] for at in range(len(self._connections))]

    def _reply(self, at: int) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = json.loads(self._connections[at].recv_bytes())
        except (EOFError, OSError):
            raise ModelLoadFailed(f"{self._named(at)} ended while it was loading") from None
        if "error" in reply:
            raise from_wire(reply["error"])
        return reply

    def _named(self, at: int) -> str:
        if self._network is None:
            where = f"pid {self._processes[at].pid}"
        else:
            where = f"at {self._network.addresses[at][0]}"
        return f"process {at + 1} of {self._plan.ranks} of the model ({where})"

    def _watch(self) -> None:
        """Until one of them is lost. Its silence counts only while this process runs: after a
        machine has slept, each has its full time."""
        limit_s = GPU_SILENCE_S if self._plan.gpu_layers else SILENCE_S
        silent_s = dict.fromkeys(self._connections, 0.0)
        while True:
            began_s = time.monotonic()
            heard = wait(self._connections, HEARTBEAT_S)
            passed_s = min(time.monotonic() - began_s, 2 * HEARTBEAT_S)
            for at, connection in enumerate(self._connections):
                silent_s[connection] += passed_s
                if connection in heard:
                    silent_s[connection] = 0.0
                    if not _drained(connection):
                        self._report(at, "ended unexpectedly")
                elif silent_s[connection] > limit_s:
                    self._report(at, f"has been silent for {limit_s:g} s")

    def _report(self, at: int, what: str) -> NoReturn:
        again = f"the next request starts all {self._plan.ranks} again"
        self._end(WorkerCrashed(f"{self._named(at)} {what}; {again}"))

    def _end(self, error: HearthError) -> NoReturn:
        """A process that was stopped would keep stderr open, which the daemon reads to its end."""
        for process in self._processes:
            with suppress(OSError):
                process.kill()
        self._lost(error)


class FirstProcess(Leader):
    """At the other end of a connection. far: on another machine."""

    def __init__(self, connection: Connection, *, far: bool = False) -> None:
        self._connection = connection
        self._far = far

    def receive(self) -> bytes:
        return self._connection.recv_bytes()

    def receive_file(self) -> IO[bytes]:
        if self._far:
            file = os.fdopen(_new_file("hearth-adapter"), "w+b")
            file.write(self._connection.recv_bytes())
            file.flush()
            return file
        with _channel(self._connection) as channel:
            _, passed = receive_with_file(channel, len(_WITH_FILE))
        if passed is None:
            raise EOFError
        return os.fdopen(passed, "rb")


def send_file(connection: Connection, file: IO[bytes], *, far: bool = False) -> None:
    """To a FirstProcess's owner: the open file, or what is in it. Raises OSError."""
    if far:
        file.seek(0)
        connection.send_bytes(file.read())
        return
    with _channel(connection) as channel:
        send_with_file(channel, _WITH_FILE, file.fileno())


def _channel(connection: Connection) -> socket.socket:
    """The same connection as a socket, which files can go over."""
    return socket.socket(fileno=os.dup(connection.fileno()))


def _new_file(name: str) -> int:
    """The descriptor of a file in memory only. Raises ModelLoadFailed where there are none."""
    if sys.platform == "linux":
        return os.memfd_create(name, 0)
    raise ModelLoadFailed(_LINUX_ONLY)


def _new_pipe() -> tuple[Connection, Connection]:
    """Two ends of a connection. Raises as _new_store, OSError."""
    if sys.platform != "win32":
        return new_pipe()
    raise ModelLoadFailed(_LINUX_ONLY)


def _drained(connection: Connection) -> bool:
    """Read what has come; False at its end."""
    try:
        while connection.poll():
            connection.recv_bytes()
    except (EOFError, OSError):
        return False
    return True


def beat(connection: Connection) -> None:
    """Send heartbeats, and nothing else is sent, until the first process is gone."""
    with suppress(OSError):
        while True:
            connection.send_bytes(b"")
            time.sleep(HEARTBEAT_S)


def send_reply(connection: Connection, reply: dict[str, Any]) -> None:
    """Answer the first process."""
    connection.send_bytes(json.dumps(reply).encode())
