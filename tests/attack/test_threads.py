"""One key occupies the threads in which the daemon reads files and looks up names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx

from runner.server.openai.batches.executor import MAX_OPEN_OF_KEY
from tests.attack.test_owners import client_of, line, make_key, upload
from tests.conftest import StartDaemon

DEADLINE_S = 60.0
CHAT: dict[str, Any] = {
    "model": "echo", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4,
}  # fmt: skip


def test_a_key_whose_files_are_slow_to_read_stops_no_other(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon()
    with (
        daemon.client() as owner,
        client_of(daemon, make_key(owner, "boss", "admin")) as boss,
        client_of(daemon, make_key(boss, "greedy")) as greedy,
        client_of(daemon, make_key(boss, "other")) as other,
    ):
        ident = upload(greedy, line("a", "hello")).json()["id"]
        (path,) = tmp_path.rglob(ident)
        path.unlink()
        os.mkfifo(path)  # opening it blocks, as a disk may
        try:
            for _ in range(MAX_OPEN_OF_KEY):
                begin_batch(greedy, ident)
            for _ in range(3):
                answer = other.post("/v1/chat/completions", json=CHAT, timeout=DEADLINE_S)
                assert answer.status_code == 200, answer.text
                assert other.get("/v1/files", timeout=DEADLINE_S).json()["data"] == []
        finally:
            release(path)


def begin_batch(http: httpx.Client, ident: str) -> None:
    """Begin one, without waiting for an answer that may not come while its key's threads block."""
    body = {"input_file_id": ident, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    try:
        http.post("/v1/batches", json=body, timeout=0.5)
    except httpx.ReadTimeout:
        return


def release(path: Path) -> None:
    """Let all who wait for the pipe go on, and nobody wait again."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NONBLOCK)):
        path.rename(path.with_name("pipe"))
