"""The processes of one model are of one version; the sandbox holds for what connects them."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from runner.errors import HearthError, ModelLoadFailed
from runner.types import LoadPlan
from runner.worker import ranks
from runner.worker.ranks import RankProcesses

ROOT = Path(__file__).parents[4]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are of Linux")

# A thread that a sandboxed process starts to connect, and the connection itself
CONNECTED = """
import json, socket, sys, threading
from runner.worker.isolation import isolate
from runner.worker.sandbox import enter_sandbox
isolate()
found, entered, ends = {}, threading.Event(), []

def attempt(name, act):
    try:
        found[name] = str(act())
    except OSError as error:
        found[name] = error.strerror

def work():
    entered.wait(30)
    attempt("thread opens a socket", lambda: socket.socket() and "it can")
    attempt("thread reads a file", lambda: open("/etc/passwd").read(1) and "it can")

def connect():
    attempt("file while connecting", lambda: open("/etc/passwd").read(1) and "it can")
    with socket.create_server(("127.0.0.1", 0)) as server:
        ends.append(socket.create_connection(server.getsockname()))
        ends.append(server.accept()[0])
    threads.append(threading.Thread(target=work))
    threads[0].start()

threads = []
missing = enter_sandbox([], connect=connect)
entered.set()
threads[0].join(30)
attempt("process opens a socket", lambda: socket.socket() and "it can")
ends[0].sendall(b"still there")
found["connection"] = ends[1].recv(100).decode()
print(json.dumps([missing, found]))
"""


def test_threads_that_connect_are_confined_and_their_connections_stay() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONNECTED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    missing, found = json.loads(done.stdout)
    refused = "Operation not permitted"
    assert found.pop("connection") == "still there"
    assert [found.pop(f"{who} opens a socket") for who in ("thread", "process")] == [refused] * 2
    if not missing:
        assert set(found.values()) == {"Permission denied"}


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_processes_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(error: HearthError) -> NoReturn:
        raise AssertionError(error.message)

    other: Any = SimpleNamespace(version=lambda: "hearth 0.0.9 with PyTorch 2.0")
    monkeypatch.setattr(ranks, "backend_of", lambda _plan: other)
    with ExitStack() as ended:
        processes = RankProcesses(LoadPlan("/m", "torch", 64, 64, 1, tensor_parallel=2), lost)
        with pytest.raises(ModelLoadFailed, match=r"process 1 .* process 0 is hearth 0\.0\.9"):
            processes.join()
        for process, connection in zip(processes._processes, processes._connections, strict=True):
            ended.callback(process.wait, 60)
            ended.callback(connection.close)
