"""Clients ask for what is stored, all at once, and read none of it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.attack.test_owners import upload
from tests.conftest import RunningDaemon, running_daemon

DEADLINE_S = 120.0
CONNECTIONS = 150
STORED_BYTES = 4 << 20
MAX_GROWTH_BYTES = 320 << 20  # of which 256 MiB are for the answers of one client
MAX_PIECES_BYTES = 96 << 20  # of files, which are read a little at a time


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running_daemon(tmp_path_factory.mktemp("stored")) as running:
        yield running


@pytest.fixture
def http(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    with daemon.client() as client:
        yield client


def store_response(http: httpx.Client) -> str:
    """The path of a response as long as a request may be."""
    body = {"model": "echo", "input": "a", "background": True, "instructions": "a " * (2 << 20)}
    return f"/v1/responses/{http.post('/v1/responses', json=body).json()['id']}"


def store_conversation(http: httpx.Client) -> str:
    """The path of the items of one."""
    items = [{"type": "message", "role": "user", "content": "a " * (2 << 20)}]
    made = http.post("/v1/conversations", json={"items": items}).json()
    return f"/v1/conversations/{made['id']}/items"


def store_file(http: httpx.Client) -> str:
    """The path of the bytes of one."""
    return f"/v1/files/{upload(http, bytes(STORED_BYTES)).json()['id']}/content"


def resident_bytes(daemon: RunningDaemon, name: str = "VmRSS") -> int:
    (line,) = (
        line
        for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
        if line.startswith(f"{name}:")
    )
    return int(line.split()[1]) << 10


@pytest.mark.parametrize(
    ("store", "max_growth_bytes"),
    [
        (store_response, MAX_GROWTH_BYTES),
        (store_conversation, MAX_GROWTH_BYTES),
        (store_file, MAX_PIECES_BYTES),
    ],
)
def test_answers_that_nobody_reads_hold_a_bounded_memory(
    daemon: RunningDaemon,
    http: httpx.Client,
    store: Callable[[httpx.Client], str],
    max_growth_bytes: int,
) -> None:
    path = store(http)
    before = resident_bytes(daemon)
    Path(f"/proc/{daemon.pid}/clear_refs").write_text("5")  # the peak begins now
    with contextlib.ExitStack() as opened:
        unread = [opened.enter_context(ask(daemon, path)) for _ in range(CONNECTIONS)]
        heads = [head(each) for each in unread]
        assert http.get("/health").status_code == 200
        assert resident_bytes(daemon, "VmHWM") - before < max_growth_bytes
    assert heads.count(b"HTTP/1.1 200") >= 10
    assert set(heads) <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}
    limit = time.monotonic() + DEADLINE_S
    while (answer := http.get(path)).status_code == 503:  # until the daemon has noticed that
        assert time.monotonic() < limit
    assert len(answer.content) > STORED_BYTES - 16


@contextlib.contextmanager
def ask(daemon: RunningDaemon, path: str) -> Iterator[socket.socket]:
    """A client that has asked for it, whose system takes little of the answer."""
    with socket.socket() as client:
        client.settimeout(DEADLINE_S)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", daemon.port))
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        yield client


def head(client: socket.socket) -> bytes:
    return client.recv(12, socket.MSG_WAITALL)
