"""Clients that hold connections, more of them than the daemon has descriptors."""

from __future__ import annotations

import json
import resource
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.integration.test_tls import certificate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")

MAX_FILES = 256
CONNECTIONS = 600
MAX_WARNINGS = 5
UNFINISHED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/json\r\ncontent-length: 9\r\n\r\n{"
)
TLS_BEGUN = b"\x16\x03\x01\x02\x00\x01"  # the first bytes of a handshake's first record
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(autouse=True)
def _own_descriptors() -> Iterator[None]:
    """This process needs more of them than the daemon has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16_384, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(daemon: RunningDaemon, opened: ExitStack, sent: bytes = b"") -> socket.socket:
    client = opened.enter_context(socket.create_connection(("127.0.0.1", daemon.port), 60))
    if sent:
        client.sendall(sent)
    return client


def chat(client: httpx.Client) -> str:
    asked = {"model": "echo", "messages": [{"role": "user", "content": "honest"}]}
    answer = client.post("/v1/chat/completions", json=asked).json()
    return str(answer["choices"][0]["message"]["content"])


def owner(daemon: RunningDaemon) -> dict[str, str]:
    facts = json.loads((daemon.home / "state" / "daemon.json").read_text())
    return {"authorization": f"Bearer {facts['token']}"}


def test_idle_connections_keep_nobody_out_and_fill_no_log(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(max_files=MAX_FILES)
    with ExitStack() as opened:
        for number in range(CONNECTIONS):
            connect(daemon, opened, HEALTH if number % 2 else b"")
        for _ in range(3):
            with daemon.client() as client:
                assert client.get("/health").status_code == 200
                assert chat(client) == "honest"
    assert len(daemon.lines) < 20, "".join(daemon.lines)


def until_full(daemon: RunningDaemon, opened: ExitStack) -> None:
    """Open connections until others are refused: on a busy machine some are closed before they are
    read."""
    deadline_s = time.monotonic() + 60
    with daemon.client() as http:
        while http.get("/api/version").status_code != 503:
            connect(daemon, opened, UNFINISHED)
            assert time.monotonic() < deadline_s


def test_running_requests_leave_room_for_health_and_for_the_owner(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(max_files=MAX_FILES)
    with ExitStack() as opened:
        waiting = [connect(daemon, opened, UNFINISHED) for _ in range(CONNECTIONS // 4)]
        assert waiting[-1].recv(12) == b"HTTP/1.1 503"
        for _ in range(3):
            until_full(daemon, opened)
            with daemon.client() as http:
                assert http.get("/health").status_code == 200
            with daemon.client() as http:
                assert http.get("/api/version", headers=owner(daemon)).status_code == 200
    refusals = [line for line in daemon.lines if "WARNING" in line or "ERROR" in line]
    assert len(refusals) <= MAX_WARNINGS, refusals


def test_the_limit_of_open_files_is_raised_at_the_start(start_daemon: StartDaemon) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        daemon = start_daemon()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)[0] == min(16_384, hard)


def test_tls_handshakes_that_never_end_keep_nobody_out(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    pem = certificate(tmp_path / "pem")
    daemon = start_daemon(env={"HEARTH_TLS_CERT": str(pem.both)}, max_files=MAX_FILES)
    trusted = ssl.create_default_context(cafile=str(pem.certificate))
    with ExitStack() as opened:
        for number in range(CONNECTIONS):
            connect(daemon, opened, TLS_BEGUN if number % 2 else b"")
        for _ in range(3):
            with httpx.Client(base_url=daemon.url, verify=trusted, timeout=5) as client:
                assert client.get("/health").status_code == 200
                assert chat(client) == "honest"
        files = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
        assert files < MAX_FILES
    assert len(daemon.lines) < 20, "".join(daemon.lines)
