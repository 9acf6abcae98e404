"""What another process on one of the cores costs: python -m tests.benchmarks.busy MODEL.gguf.

Tokens a second of one sequence while nothing else runs, and while a process that never waits keeps
one core, in turns: with hearth's kernels and with llama.cpp's, both with the short spin that
hearth's workers set, and llama.cpp's with the spin that OpenMP has by itself. Then the processor
time of a daemon that does nothing, without and with the model loaded.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

from cli.bench.machine import machine_facts
from runner.backends.host_sampling.openmp import SPIN_COUNT
from tests.benchmarks import servers
from tests.benchmarks.bare_loop import DecodeLoopRun
from tests.benchmarks.server_loads import bare, turned

TARGET = 0.4  # of the quiet speed, with one of two cores taken
OPENMP_SPIN_COUNT = "300000"  # libgomp's, where nothing is set
SIDES = {
    "hearth's kernels": (1, SPIN_COUNT),
    "llama.cpp's": (0, SPIN_COUNT),
    "llama.cpp's, own spin": (0, OPENMP_SPIN_COUNT),
}
IDLE_S = 30.0
SPIN = "while True: pass"


def main() -> int:
    """Measure; 0 when the target was met."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.busy")
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output-tokens", type=int, default=64)
    given = parser.parse_args()
    facts = machine_facts()
    print(f"{facts['cpu']}, {facts['cores']} cores, {facts['date']}; {given.model.name}")
    run = DecodeLoopRun(str(given.model.resolve()), output_tokens=given.output_tokens)
    rates: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    for turn in range(given.rounds):
        for side in turned(list(SIDES), turn):
            kernels, spin = SIDES[side]
            rates[side].append(_rates(run, kernels, spin))
    for side, pairs in rates.items():
        quiet, busy = (median(column) for column in zip(*pairs, strict=True))
        ratio = median(busy / quiet for quiet, busy in pairs)
        print(f"{side}: {quiet:.1f} tok/s, {busy:.1f} beside a busy core, ratio {ratio:.2f}")
    for what, share in _idle_shares(given.model.resolve()):
        print(f"{what}: {100 * share:.2f} % of one core in {IDLE_S:g} s")
    own = median(busy / quiet for quiet, busy in rates["hearth's kernels"])
    print(f"target: hearth's kernels at least {TARGET}: {'met' if own >= TARGET else 'NOT met'}")
    return 0 if own >= TARGET else 1


def _rates(run: DecodeLoopRun, kernels: int, spin: str) -> tuple[float, float]:
    """Tokens a second without and with the other process."""
    wanted = DecodeLoopRun(run.model, output_tokens=run.output_tokens, kernels=kernels)
    os.environ["GOMP_SPINCOUNT"] = spin
    quiet = bare(wanted).decode_tokens_per_s
    with _busy_core():
        return quiet, bare(wanted).decode_tokens_per_s


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


if __name__ == "__main__":
    sys.exit(main())
