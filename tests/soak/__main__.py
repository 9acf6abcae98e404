"""python -m tests.soak [--minutes 120] [--clients 64] [--seed 1]: many clients of all kinds against
one daemon for hours, while a worker is killed every minute.

Prints what happened, and exits with 1 if memory or descriptors grew, a place stayed taken, an
answer was a 5xx that nobody asked for, or /health was slow. The clients run in a process of lower
priority, so that they do not take the daemon's time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import psutil

from cli.bench.machine import machine_facts
from registry.store import Store
from tests.clients.daemon import SLOW_TEMPLATE
from tests.conftest import RunningDaemon, running_daemon
from tests.echo_models import echo_gguf, install_echo
from tests.registry_server import fake_registry
from tests.soak import crowd
from tests.soak.behaviours import MODELS, PULLED
from tests.soak.gauges import Gauges, Sample

KILL_EVERY_S = 60.0
MAX_GROWTH, MAX_HEALTH_S = 1.05, 0.05
SETTINGS = {
    "HEARTH_OFFLINE": "0",
    "HEARTH_MAX_LOADED_MODELS": "3",
    "HEARTH_KEEP_ALIVE": "20",
    "HEARTH_CONTEXT_LENGTH": "2048",
    "HEARTH_CACHE_SIZE": "16MiB",  # saved prompts: what is known of them fills up early
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, fake_registry() as registry:
        home = Path(folder)
        _install_slow(home)
        for number in range(3):
            registry.add_model(f"library/{PULLED}{number}", echo_gguf(salt=f"pulled{number}"))
        with running_daemon(home, ("echo", "tools"), SETTINGS) as daemon:
            report = _soak(daemon, registry.address, options)
            faults = [line for line in daemon.lines if "Traceback" in line]
    print(f"tracebacks in the daemon's log: {len(faults)}")
    return 0 if report and not faults else 1


def _install_slow(home: Path) -> None:
    store = Store.open(home / "models")
    try:
        install_echo(store, "slow", template=SLOW_TEMPLATE)
    finally:
        store.close()


def _soak(daemon: RunningDaemon, registry: str, options: argparse.Namespace) -> bool:
    facts = machine_facts()
    print(f"{facts['cpu']}, {facts['cores']} cores, hearth {facts['hearth']}, {facts['date']}; "
          f"{options.minutes:g} min, {options.clients} clients, seed {options.seed}")  # fmt: skip
    gauges = Gauges(daemon.pid, daemon.port)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    clients = multiprocessing.get_context("spawn").Process(
        target=crowd.run, args=(theirs, daemon.port, registry, options)
    )
    clients.start()
    theirs.close()
    kills = _kill_workers(daemon.pid, options.minutes * 60, random.Random(options.seed))
    statuses, unasked = ours.recv()
    clients.join()
    free = _all_places_are_free(daemon)
    gauges.stop()
    print(f"workers killed: {kills}; answers: {dict(sorted(statuses.items()))}")
    for text, count in unasked.most_common(20):
        print(f"not asked for: {count} x {text}")
    quick = _health(gauges)
    steady = _growth(gauges.samples)
    print(f"every place is free again: {free}")
    return free and quick and steady and not unasked


def _kill_workers(pid: int, seconds: float, dice: random.Random) -> int:
    """Kill one of the daemon's workers every minute; how many it were."""
    kills, until_s = 0, time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, KILL_EVERY_S))
        workers = psutil.Process(pid).children()
        if workers and left_s > KILL_EVERY_S:
            os.kill(dice.choice(workers).pid, signal.SIGKILL)
            kills += 1
    return kills


def _all_places_are_free(daemon: RunningDaemon) -> bool:
    """Whether nothing runs or waits any more, and every model still answers."""
    with daemon.client() as http:
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            busy = re.findall(
                r"^vllm:num_requests_(?:running|waiting)\{.*\} ([0-9.]+)$",
                http.get("/metrics").text,
                re.MULTILINE,
            )
            if not any(map(float, busy)):
                break
            time.sleep(0.5)
        else:
            return False
        return all(_answers(http, name) for name in MODELS)


def _answers(http: httpx.Client, model: str) -> bool:
    body = {"model": model, "prompt": "a", "stream": False, "options": {"num_predict": 2}}
    # its worker may have been killed a moment ago
    return any(http.post("/api/generate", json=body).status_code == 200 for _ in range(3))


def _health(gauges: Gauges) -> bool:
    times = sorted(gauges.health_s)
    p99_s = times[int(len(times) * 0.99)]
    print(f"/health: {len(times)} times, p50 {times[len(times) // 2] * 1000:.1f} ms, p99 "
          f"{p99_s * 1000:.1f} ms, max {times[-1] * 1000:.0f} ms, unanswered {gauges.unanswered}"
          )  # fmt: skip
    return p99_s <= MAX_HEALTH_S and not gauges.unanswered


def _growth(samples: Sequence[Sample]) -> bool:
    """Compares the second and the last tenth of the time: the first warms up. Memory by its median,
    which leaves out large bodies; descriptors by their mean, since one of twenty is 5 %."""
    part = max(1, len(samples) // 10)
    steady = True
    for name, unit, middle in (
        ("memory_bytes", 1 << 20, statistics.median),
        ("descriptors", 1, statistics.fmean),
        ("threads", 1, statistics.fmean),
    ):
        tenths = [
            middle([getattr(sample, name) for sample in samples[at : at + part]])
            for at in range(0, part * 10, part)
            if samples[at : at + part]
        ]
        before, after = tenths[min(1, len(tenths) - 1)], tenths[-1]
        shown = " ".join(f"{value / unit:.2f}" for value in tenths)
        print(f"{name}, by tenths of the time: {shown}; ratio {after / before:.3f}")
        steady = steady and (name == "threads" or after <= before * MAX_GROWTH)
    return steady


if __name__ == "__main__":
    sys.exit(main())
