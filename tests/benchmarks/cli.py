"""How long the command line takes, and what an idle daemon costs: python -m tests.benchmarks
runs these beside the serving loads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from cli.daemon import process_of
from cli.daemon import running as daemon_running
from runner.client import Client
from tests.benchmarks.comparison import Comparison, RatioTarget, alone
from tests.benchmarks.relay import relaying
from tests.benchmarks.servers import (
    ROOT,
    STOP_TIMEOUT_S,
    free_port,
    hearth,
    hearth_environment,
    running,
)

HELP = RatioTarget("at most", 150)
IDLE = RatioTarget("at most", 90)
COLD = RatioTarget("at most", 3.0)
WARM = RatioTarget("at most", 250)
ANSWER_TIMEOUT_S = 120.0
PROMPT = ("run", "ember", "hi")


def hearth_program() -> list[str]:
    """The console script next to this interpreter, else the module it calls."""
    script = Path(sys.executable).with_name("hearth")
    return [str(script)] if script.exists() else [sys.executable, "-m", "cli.main"]


def measure_cli(scratch: Path, rounds: int) -> Iterator[Comparison]:
    """All figures of this module. scratch: an empty folder for stores and logs."""
    yield alone("hearth --help", "ms", [_help_ms() for _ in range(3 * rounds)], HELP)
    cold = [_cold_run_s(scratch / f"cold-{turn}") for turn in range(rounds)]
    yield alone("hearth run ember hi, no daemon: first token", "s", cold, COLD)
    home = scratch / "idle"
    home.mkdir()
    port = free_port()
    with running(hearth(home, port), scratch) as side:
        yield alone("idle daemon: memory", "MB", [(side.rss_bytes or 0) / 1e6], IDLE)
        asyncio.run(_request_sent_ms(home, port))  # loads the model and warms the disk cache
        warm = [asyncio.run(_request_sent_ms(home, port)) for _ in range(3 * rounds)]
        yield alone("hearth run, daemon warm: request sent", "ms", warm, WARM)


def _help_ms() -> float:
    started_s = time.perf_counter()
    command = [*hearth_program(), "--help"]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=60)
    return (time.perf_counter() - started_s) * 1000


def _cold_run_s(home: Path) -> float:
    """Seconds from starting the command to its first visible byte, with no daemon and an empty
    store. The daemon that it starts is stopped afterwards."""
    home.mkdir()
    port = free_port()
    environment = {**os.environ, **hearth_environment(home, port)}
    del environment["HEARTH_NO_AUTOSTART"]
    started_s = time.perf_counter()
    with subprocess.Popen(
        [*hearth_program(), *PROMPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        first = b" "
        while first.isspace():
            first = os.read(process.stdout.fileno(), 1)
        seconds = time.perf_counter() - started_s
        process.terminate()
        _, said = process.communicate(timeout=ANSWER_TIMEOUT_S)
    _stop_listener(port)
    if not first:
        raise RuntimeError(f"hearth {' '.join(PROMPT)}: {said.decode()}")
    return seconds


def _stop_listener(port: int) -> None:
    client = Client(f"http://127.0.0.1:{port}")
    about = daemon_running(client)
    if about is not None:
        daemon = process_of(client, about)
        daemon.send_signal(signal.SIGTERM)
        with suppress(psutil.NoSuchProcess):
            daemon.wait(STOP_TIMEOUT_S)


async def _request_sent_ms(home: Path, port: int) -> float:
    """Milliseconds from starting the command until its request leaves for the daemon."""
    async with relaying(port) as relay:
        environment = {**os.environ, **hearth_environment(home, relay.port)}
        started_s = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *hearth_program(),
            *PROMPT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=ROOT,
        )
        ended = asyncio.create_task(process.communicate())
        sent = asyncio.create_task(relay.seen.wait())
        await asyncio.wait(
            (ended, sent), timeout=ANSWER_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        sent.cancel()
        if process.returncode is None:
            process.terminate()
        _, said = await ended
    if not relay.seen.is_set():
        raise RuntimeError(f"hearth {' '.join(PROMPT)}: {said.decode()}")
    return (relay.seen_s - started_s) * 1000
