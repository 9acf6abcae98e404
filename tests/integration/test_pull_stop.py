"""A daemon that is told to stop in the middle of a pull."""

from __future__ import annotations

import json
import threading

from tests.conftest import StartDaemon
from tests.echo_models import echo_gguf
from tests.integration.test_pull import CHUNK, keep_up
from tests.registry_server import fake_registry

ONLINE = {"HEARTH_OFFLINE": "0"}
SIZE = 4_000_000


def test_a_stopped_daemon_says_so_and_its_successor_goes_on(start_daemon: StartDaemon) -> None:
    content = echo_gguf() + bytes(range(250)) * (SIZE // 250)
    first, stopping = start_daemon(env=ONLINE), threading.Event()
    stopped = threading.Event()

    def stop(served_bytes: int) -> None:
        keep_up(first, served_bytes - 3 * CHUNK, stopped)
        if served_bytes > SIZE // 2:
            if not stopping.is_set():
                stopping.set()
                first.process.terminate()
            stopped.wait(60)  # what is left to send comes too late

    with fake_registry() as remote:
        remote.add_model("t/m", content)
        remote.before_part = stop
        body = {"model": f"{remote.address}/t/m"}
        with first.client() as http:
            told = http.post("/api/pull", json=body).text.splitlines()
        assert first.wait() == 0
        stopped.set()
        remote.await_quiet()
        assert (
            json.loads(told[-1])["error"] == "the transfer was cancelled; the received data is kept"
        )
        remote.served_bytes, remote.before_part = 0, None
        second = start_daemon(env=ONLINE, home=first.home, names=())
        with second.client() as http:
            lines = [json.loads(line) for line in http.post("/api/pull", json=body).iter_lines()]
            asked = {**body, "prompt": "ok", "stream": False}
            assert http.post("/api/generate", json=asked).json()["response"] == "ok"
        kept = max(line.get("resumed", 0) for line in lines)
        assert lines[-1]["status"] == "success"
        assert kept >= SIZE // 2 - 4 * CHUNK, "one chunk for each of two streams, and what was sent"
        assert remote.served_bytes == len(content) - kept
