"""What another process on one of the cores costs one stream: tokens a second while nothing else
runs, and while a process that never waits keeps one core, in turns.

Measured without a server, with hearth's kernels and with llama.cpp's; both with the short spin
that hearth's workers set, and llama.cpp's with the spin that OpenMP has by itself. hearth's kernels
have as many threads as its workers choose for each step, and as many as there are cores. Then the
processor time of a daemon that does nothing, without and with the model loaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from runner.backends.host_sampling.openmp import SPIN_COUNT
from tests.benchmarks import servers
from tests.benchmarks.bare_loop import DecodeLoopRun
from tests.benchmarks.comparison import Comparison, RatioTarget, alone, compare
from tests.benchmarks.server_loads import bare, turned

TARGET = RatioTarget("at least", 0.4)  # of the quiet speed, with one of two cores taken
OWN = "hearth's kernels"
SIDES = {  # kernels, choose_threads, spin
    OWN: (1, 1, SPIN_COUNT),
    "hearth's, all threads": (1, 0, SPIN_COUNT),
    "llama.cpp's": (0, 0, SPIN_COUNT),
    "llama.cpp's, own spin": (0, 0, servers.OPENMP_SPIN_COUNT),
}
IDLE_S = 10.0
SPIN = "while True: pass"


def beside_busy_core(model: Path, rounds: int, output_tokens: int) -> Iterator[Comparison]:
    """All of it."""
    run = DecodeLoopRun(str(model.resolve()), output_tokens=output_tokens)
    quiet: dict[str, list[float]] = {side: [] for side in SIDES}
    busy: dict[str, list[float]] = {side: [] for side in SIDES}
    for turn in range(rounds):
        for side in turned(list(SIDES), turn):
            kernels, choose, spin = SIDES[side]
            wanted = replace(run, kernels=kernels, choose_threads=choose)
            quiet[side].append(bare(wanted, GOMP_SPINCOUNT=spin).decode_tokens_per_s)
            with _busy_core():
                busy[side].append(bare(wanted, GOMP_SPINCOUNT=spin).decode_tokens_per_s)
    name = "no server, beside a busy core"
    yield compare(name, "tok/s", busy[OWN], ("both cores", quiet[OWN]), TARGET)
    for side in list(SIDES)[1:]:
        yield compare(name, "tok/s", busy[OWN], (side, busy[side]))
        yield compare("no server", "tok/s", quiet[OWN], (side, quiet[side]))
    for what, share in _idle_shares(model.resolve()):
        yield alone(what, "% of a core", [100 * share], None)


@contextmanager
def _busy_core() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _idle_shares(model: Path) -> Iterator[tuple[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        home, port = Path(folder), servers.free_port()
        with servers.running(servers.hearth(home, port), home) as side:
            yield "idle daemon", _share(side.pid)
            servers.install_model(model, home, port)
            side.client.load(servers.MODEL_NAME)
            yield "idle daemon with the model loaded", _share(side.pid)


def _share(pid: int) -> float:
    """The part of one core that a process and its children take."""
    before, began_s = _used_s(pid), time.monotonic()
    time.sleep(IDLE_S)
    return (_used_s(pid) - before) / (time.monotonic() - began_s)


def _used_s(pid: int) -> float:
    top = psutil.Process(pid)
    times = [process.cpu_times() for process in (top, *top.children(recursive=True))]
    return sum(one.user + one.system for one in times)
