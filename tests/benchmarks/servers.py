"""Starts and stops the servers that are compared: hearth, llama_cpp.server and llama-server.

Each listens on a free port of 127.0.0.1, writes its log into the results folder and is ended by
its own process id.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from cli.process import tree_rss_bytes
from runner.backends.host_sampling.openmp import SPIN_COUNT
from runner.client import Client

ROOT = Path(__file__).resolve().parents[2]
THREADS = psutil.cpu_count(logical=False) or 1
SLOTS = 16
SLOT_TOKENS = 10_240
LLAMA_SERVER_OPTIONS = ("-fa", "on", "-np", str(SLOTS), "-c", str(SLOTS * SLOT_TOKENS),
                        "-t", str(THREADS), "-tb", str(THREADS))  # fmt: skip
MODEL_NAME = "bench"
OPENMP_SPIN_COUNT = "300000"  # libgomp's, where nothing is set
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0


class ServerFailed(Exception):
    """The server ended or did not get ready. The message names its log."""


@dataclass(frozen=True, slots=True)
class Side:
    """One running server of the comparison."""

    name: str
    client: Client
    pid: int
    ready_s: float

    @property
    def rss_bytes(self) -> int | None:
        """Memory of its process tree now."""
        return tree_rss_bytes(self.pid)


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a server, and the path that answers 200 when it is ready."""

    name: str
    arguments: Sequence[str]
    port: int
    ready_path: str
    environment: Mapping[str, str]


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The variables of every side. All get the short spin that hearth's workers set, so that a
    busy machine slows no side more than another; on a quiet one it changes nothing."""
    return {"GOMP_SPINCOUNT": SPIN_COUNT, **os.environ, **extra}


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Command, logs: Path) -> Iterator[Side]:
    """The server, from ready to stopped. Raises ServerFailed."""
    log = logs / f"{command.name}.log"
    started_s = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command.arguments,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment(command.environment),
            cwd=ROOT,
        )
    try:
        _wait_ready(command, process, log)
        ready_s = time.perf_counter() - started_s
        client = Client(f"http://127.0.0.1:{command.port}")
        yield Side(command.name, client, process.pid, ready_s)
    finally:
        stop(process)


def _wait_ready(command: Command, process: subprocess.Popen[bytes], log: Path) -> None:
    url = f"http://127.0.0.1:{command.port}{command.ready_path}"
    deadline_s = time.monotonic() + START_TIMEOUT_S
    with httpx.Client(trust_env=False, timeout=5) as client:
        while time.monotonic() < deadline_s:
            if process.poll() is not None:
                raise ServerFailed(f"{command.name} ended with {process.returncode}; see {log}")
            try:
                if client.get(url).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
    raise ServerFailed(f"{command.name} was not ready after {START_TIMEOUT_S:.0f} s; see {log}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process: politely, then by force."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def hearth(home: Path, port: int) -> Command:
    """A daemon with a store of its own."""
    return Command(
        "hearth",
        [sys.executable, "-m", "runner.server"],
        port,
        "/health",
        hearth_environment(home, port),
    )


def hearth_environment(home: Path, port: int) -> dict[str, str]:
    """The variables that tie daemon and CLI of a benchmark together, apart from any other."""
    return {
        "HEARTH_HOME": str(home),
        "HEARTH_HOST": f"127.0.0.1:{port}",
        "HEARTH_KEEP_ALIVE": "-1",
        "HEARTH_NO_AUTOSTART": "1",
    }


def install_model(model: Path, home: Path, port: int) -> None:
    """Give the daemon the model file, under MODEL_NAME, as a user would."""
    modelfile = home / "Modelfile"
    modelfile.write_text(f'FROM "{model}"\n', "utf-8")
    subprocess.run(
        [sys.executable, "-m", "cli.main", "create", MODEL_NAME, "-f", str(modelfile)],
        check=True,
        env=environment(hearth_environment(home, port)),
        cwd=ROOT,
        timeout=600,
    )


def llama_cpp_server(python: Path, model: Path, port: int) -> Command:
    """llama-cpp-python's own server, which answers one request at a time.

    interrupt_requests: by default a new request kills the running stream. logits_all: by
    default the logits of every prompt token are computed, which nothing here needs.
    """
    options = {
        "model": model,
        "host": "127.0.0.1",
        "port": port,
        "n_ctx": 4096,
        "n_threads": THREADS,
        "n_threads_batch": THREADS,
        "interrupt_requests": "false",
        "logits_all": "false",
        "verbose": "false",
    }
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    arguments = [str(python), "-m", "llama_cpp.server", *words]
    return Command("llama_cpp.server", arguments, port, "/v1/models", {})


def llama_server(program: Path, model: Path, port: int, environment: Mapping[str, str]) -> Command:
    """llama.cpp's C++ server at its best: flash attention, a slot for each client, and its cache of
    prompts, which is on by default."""
    options = ["--host", "127.0.0.1", "--port", str(port), *LLAMA_SERVER_OPTIONS, "--jinja"]
    arguments = [str(program), "-m", str(model), *options]
    return Command("llama-server", arguments, port, "/health", environment)
