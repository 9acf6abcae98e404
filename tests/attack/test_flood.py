"""As many hostile clients as the daemon takes, all at once."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.attack.test_bodies import memory_mib
from tests.conftest import RunningDaemon, StartDaemon

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

PROCESSES = 2
CLIENTS = 4096
MAX_MIB = 1024
MAX_LEFT_MIB = 120  # of memory, once they have left
MAX_ARRIVAL_S = 20.0  # that /health takes while they come: seen are 0.8 to 2 of its own time
MAX_HEALTH_S = 2.0  # and once they are there: seen are 0.02 to 0.07
LEFT_S = 60.0
PAUSE_S = 0.01  # between two questions


@contextmanager
def flood(daemon: RunningDaemon) -> Iterator[threading.Event]:
    """The clients; the event is set once they have sent all that they can."""
    there = threading.Event()
    command = [sys.executable, "-m", "tests.attack.flood_clients", str(daemon.port)]
    processes = [
        subprocess.Popen([*command, str(CLIENTS // PROCESSES)], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        for _ in range(PROCESSES)
    ]  # fmt: skip

    def wait() -> None:
        if all(process.stdout and process.stdout.readline() for process in processes):
            there.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    try:
        yield there
    finally:
        for process in processes:
            process.communicate(timeout=LEFT_S)
        waiting.join()


def health_s(daemon: RunningDaemon, until: Callable[[], bool]) -> list[float]:
    """How long /health takes, asked on a new connection each time; the longest comes last."""
    taken_s = []
    while not until():
        began_s = time.monotonic()
        with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)) as client:
            client.request("GET", "/health")
            assert client.getresponse().status == 200
        taken_s.append(time.monotonic() - began_s)
        time.sleep(PAUSE_S)
    return sorted(taken_s)


def files(daemon: RunningDaemon) -> int:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


@pytest.mark.slow
def test_thousands_of_hostile_clients_take_a_bounded_memory_and_leave_nothing(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        asked = {"model": "echo", "messages": [{"role": "user", "content": "a"}]}
        assert client.post("/v1/chat/completions", json=asked).status_code == 200
    before_mib, before_files = memory_mib(daemon.pid), files(daemon)
    with flood(daemon) as there:
        arriving_s = health_s(daemon, there.is_set)
        end_s = time.monotonic() + 5
        staying_s = health_s(daemon, lambda: time.monotonic() > end_s)
    peak_mib = memory_mib(daemon.pid, "VmHWM")
    end_s = time.monotonic() + LEFT_S
    while memory_mib(daemon.pid) > before_mib + MAX_LEFT_MIB or files(daemon) > before_files + 2:
        assert time.monotonic() < end_s, (memory_mib(daemon.pid), files(daemon), before_files)
        health_s(daemon, lambda: True)
    print(
        f"/health while they come: longest {arriving_s[-1]:.3f} s of {len(arriving_s)}; then"
        f" {staying_s[-1]:.3f} s, p99 {staying_s[len(staying_s) * 99 // 100]:.3f} s;"
        f" memory {before_mib:.0f}, {peak_mib:.0f}, {memory_mib(daemon.pid):.0f} MiB;"
        f" files {before_files}, {files(daemon)}"
    )
    assert peak_mib < MAX_MIB
    assert arriving_s[-1] < MAX_ARRIVAL_S
    assert staying_s[-1] < MAX_HEALTH_S
    assert len(daemon.lines) < 30, "".join(daemon.lines)
