"""A real daemon under mutated requests: no fault of its own, no crash, no hang, no growth.

FUZZ_COUNT and FUZZ_SEED change how many and which; `make fuzz` sends 100,000.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from contextlib import closing

import psutil

from runner.server.errors import LlamaServerErrors, surface_of
from tests.conftest import RunningDaemon, StartDaemon
from tests.fuzz_requests import Attempt, attempts

COUNT = int(os.environ.get("FUZZ_COUNT", "1200"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
MEANT = (501, 503, 507)
LONGEST_S = 1.0 if "FUZZ_COUNT" in os.environ else 30.0  # a busy machine may stall for a while
GROWTH_BYTES = 64 << 20
WARM_UP = 500  # requests before the memory is taken down


class Connection:
    """Keeps a connection as long as the daemon does."""

    def __init__(self, daemon: RunningDaemon) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)

    def send(self, attempt: Attempt) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        self._http.request(attempt.method, attempt.path, attempt.body, attempt.headers)
        answer = self._http.getresponse()
        return answer.status, answer.read()

    def close(self) -> None:
        """End it."""
        self._http.close()


def has_the_shape_of_an_error(attempt: Attempt, body: bytes) -> bool:
    """Whether body is an error as the surface of the path words it."""
    if attempt.method == "HEAD":
        return body == b""
    told = json.loads(body)["error"]
    if isinstance(surface_of(attempt.path), LlamaServerErrors):
        return isinstance(told["message"], str) and isinstance(told["code"], int)
    if attempt.path.startswith("/v1"):
        return isinstance(told["message"], str) and isinstance(told["type"], str)
    return isinstance(told, str)


def test_no_request_is_too_odd(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(names=("echo", "tools"))
    process = psutil.Process(daemon.pid)
    before, slowest = 0, (0.0, "")
    with closing(Connection(daemon)) as connection:
        for number, attempt in enumerate(attempts(SEED, COUNT)):
            began_s = time.monotonic()
            status, body = connection.send(attempt)
            slowest = max(slowest, (time.monotonic() - began_s, attempt.path))
            assert status < 500 or status in MEANT, (attempt, body)
            assert status < 400 or has_the_shape_of_an_error(attempt, body), (attempt, body)
            if number == WARM_UP:
                before = process.memory_info().rss
    growth = process.memory_info().rss - before
    assert slowest[0] < LONGEST_S, slowest
    assert growth < GROWTH_BYTES
    daemon.stop()
    assert not any("Traceback" in line or "crashed" in line for line in daemon.lines)
