"""What is measured while a soak runs: how fast /health answers, and what the daemon holds."""

from __future__ import annotations

import http.client
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

HEALTH_EVERY_S = 0.1
SAMPLE_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What the daemon's process holds at a time. memory_bytes: what it has allocated; pages of
    files are left out, which become its own whenever another process ends. descriptors: without
    its connections over TCP, which are the clients'."""

    at_s: float
    memory_bytes: int
    descriptors: int
    threads: int


class Gauges:
    """Two threads that look at a daemon until stop."""

    def __init__(self, pid: int, port: int) -> None:
        self.health_s: list[float] = []
        self.samples: list[Sample] = []
        self.unanswered = 0
        self._process = psutil.Process(pid)
        self._port = port
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._ask, self._sample)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while not self._stop.wait(HEALTH_EVERY_S):
            began_s = time.perf_counter()
            try:
                connection.request("GET", "/health")
                answer = connection.getresponse()
                answer.read()
                self.unanswered += answer.status != 200
            except (OSError, http.client.HTTPException):
                connection.close()
                self.unanswered += 1
            self.health_s.append(time.perf_counter() - began_s)
        connection.close()

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY_S):
            with self._process.oneshot():
                memory = _allocated_bytes(self._process.pid)
                connections = len(self._process.net_connections("tcp"))
                held = self._process.num_fds() - connections, self._process.num_threads()
            self.samples.append(Sample(time.monotonic(), memory, *held))


def _allocated_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)[1]) << 10  # type: ignore[index]
