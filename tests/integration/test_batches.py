"""Batches over the life of daemons, and beside live traffic."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import RunningDaemon, StartDaemon

DEADLINE_S = 120.0
ENDED = ("completed", "failed", "expired", "cancelled")
CHAT = "/v1/chat/completions"


def line(custom_id: str, text: str, **body: Any) -> dict[str, Any]:
    asked = {"model": "echo", "messages": [{"role": "user", "content": text}], **body}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": asked}


def begin(http: httpx.Client, lines: list[dict[str, Any]]) -> str:
    data = "\n".join(json.dumps(each) for each in lines).encode()
    file = http.post("/v1/files", files={"file": ("in.jsonl", data)}, data={"purpose": "batch"})
    assert file.status_code == 200, file.text
    asked = {"input_file_id": file.json()["id"], "endpoint": CHAT, "completion_window": "24h"}
    return str(http.post("/v1/batches", json=asked).json()["id"])


def until(
    http: httpx.Client, ident: str, reached: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    limit = time.monotonic() + DEADLINE_S
    while True:
        batch: dict[str, Any] = http.get(f"/v1/batches/{ident}").json()
        if reached(batch):
            return batch
        assert not ended(batch), json.dumps(batch)
        assert time.monotonic() < limit, json.dumps(batch)


def ended(batch: dict[str, Any]) -> bool:
    return batch["status"] in ENDED


def answers(http: httpx.Client, batch: dict[str, Any]) -> list[dict[str, Any]]:
    """All lines of both files."""
    files = [batch[name] for name in ("output_file_id", "error_file_id") if batch[name]]
    texts = [http.get(f"/v1/files/{ident}/content").text for ident in files]
    return [json.loads(text) for whole in texts for text in whole.splitlines()]


def journaled(home: Path) -> dict[str, str]:
    """The ids of the answers that are noted, by custom_id."""
    with closing(sqlite3.connect(home / "state" / "files" / "files.sqlite3")) as database:
        rows = [json.loads(text) for (text,) in database.execute("SELECT result FROM results")]
    return {each["custom_id"]: each["id"] for each in rows}


def half_done(daemon: RunningDaemon) -> tuple[str, dict[str, str]]:
    """A batch of 24 slow lines of which some are done."""
    with daemon.client() as http:
        ident = begin(http, [line(f"r{n}", "<|slow|>" * 3) for n in range(24)])
        until(http, ident, lambda batch: batch["request_counts"]["completed"] >= 2)
    return ident, journaled(daemon.home)


def check_completed(daemon: RunningDaemon, ident: str, before: dict[str, str]) -> None:
    with daemon.client() as http:
        batch = until(http, ident, ended)
        found = answers(http, batch)
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 24, "completed": 24, "failed": 0}
    assert Counter(each["custom_id"] for each in found) == {f"r{n}": 1 for n in range(24)}
    assert len(before) < 24
    assert before.items() <= {each["custom_id"]: each["id"] for each in found}.items()
    assert journaled(daemon.home) == {}


def test_a_batch_goes_on_after_the_daemon_was_killed(start_daemon: StartDaemon) -> None:
    first = start_daemon()
    ident, _ = half_done(first)
    os.kill(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    before = journaled(first.home)
    assert len(before) >= 2
    check_completed(start_daemon(home=first.home), ident, before)


def test_a_batch_goes_on_after_the_daemon_was_stopped(start_daemon: StartDaemon) -> None:
    first = start_daemon()
    ident, before = half_done(first)
    assert first.stop() == 0
    check_completed(start_daemon(home=first.home), ident, before)


def test_a_live_request_does_not_wait_for_a_batch(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={"HEARTH_NUM_PARALLEL": "1"})
    with daemon.client() as http:
        endless = line("long", "<|slow|>" * 50, ignore_eos=True, max_tokens=3000)
        ident = begin(http, [endless, line("next", "hello")])
        running = 'num_requests_running{model_name="echo"} 1'
        limit = time.monotonic() + DEADLINE_S
        while running not in http.get("/metrics").text:
            assert time.monotonic() < limit
        for number in range(3):
            body = line("", f"live {number}")["body"]
            answer = http.post(CHAT, json=body).json()
            assert answer["choices"][0]["message"]["content"] == f"live {number}"
        batch = http.get(f"/v1/batches/{ident}").json()
        assert batch["status"] == "in_progress"
        assert batch["request_counts"]["completed"] == 0
        assert http.post(f"/v1/batches/{ident}/cancel", json={}).json()["status"] in (
            "cancelling",
            "cancelled",
        )
        assert until(http, ident, ended)["status"] == "cancelled"


def test_priority_orders_live_requests_too(start_daemon: StartDaemon) -> None:
    with start_daemon().client() as http:
        body = line("", "hello", priority=-3)["body"]
        assert http.post(CHAT, json=body).status_code == 200
        refused = http.post(CHAT, json={**body, "priority": 2**31})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "priority"


def test_a_batch_takes_half_of_the_slots(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={"HEARTH_NUM_PARALLEL": "4"})
    with daemon.client() as http:
        endless = [
            line(f"r{n}", "<|slow|>" * 50, ignore_eos=True, max_tokens=3000) for n in range(6)
        ]
        ident = begin(http, endless)
        limit = time.monotonic() + DEADLINE_S
        while 'num_requests_running{model_name="echo"} 2' not in (
            told := http.get("/metrics").text
        ):
            assert time.monotonic() < limit, told
        assert 'num_requests_waiting{model_name="echo"} 0' in told
        http.post(f"/v1/batches/{ident}/cancel", json={})
        until(http, ident, ended)


def test_a_batch_whose_time_is_over_keeps_what_is_answered(start_daemon: StartDaemon) -> None:
    first = start_daemon()
    ident, _ = half_done(first)
    first.stop()
    before = journaled(first.home)
    path = first.home / "state" / "files" / "files.sqlite3"
    with closing(sqlite3.connect(path)) as database, database:
        (text,) = database.execute("SELECT batch FROM batches").fetchone()
        changed = json.dumps({**json.loads(text), "expires_at": int(time.time()) - 1})
        database.execute("UPDATE batches SET batch = ?", (changed,))
    with start_daemon(home=first.home).client() as http:
        batch = until(http, ident, ended)
        found = answers(http, batch)
    assert batch["status"] == "expired"
    assert len(found) == 24
    late = {each["custom_id"] for each in found if each["error"] is not None}
    assert late == {f"r{n}" for n in range(24)} - set(before)
    assert {each["error"]["code"] for each in found if each["error"]} == {"batch_expired"}


def test_a_line_that_ends_the_worker_does_not_end_the_batch(start_daemon: StartDaemon) -> None:
    with start_daemon(env={"HEARTH_NUM_PARALLEL": "4"}).client() as http:
        ident = begin(http, [line("bad", "<|crash|>"), line("good", "hello")])
        batch = until(http, ident, ended)
        found = {each["custom_id"]: each["response"] for each in answers(http, batch)}
    assert found["good"]["status_code"] == 200
    assert found["bad"]["body"]["error"]["code"] == "worker_crashed"


def test_files_are_bounded_and_their_owner_s_only(start_daemon: StartDaemon) -> None:
    sizes = {"HEARTH_MAX_FILE_SIZE": "2000", "HEARTH_MAX_FILES_SIZE": "3000"}
    daemon = start_daemon(env=sizes)
    folder = daemon.home / "state" / "files"

    def send(http: httpx.Client, size: int) -> httpx.Response:
        form: dict[str, Any] = {"files": {"file": ("a", b"x" * size)}}
        return http.post("/v1/files", data={"purpose": "vision"}, **form)

    with daemon.client() as http:
        kept = send(http, 2000)
        assert kept.status_code == 200
        assert [send(http, size).status_code for size in (2001, 1001)] == [413, 413]
        assert "HEARTH_MAX_FILES_SIZE" in send(http, 1001).json()["error"]["message"]
        assert send(http, 1000).status_code == 200
        http.delete(f"/v1/files/{kept.json()['id']}")
        assert send(http, 1500).status_code == 200
    paths = list(folder.iterdir())
    assert len([path for path in paths if path.name.startswith("file-")]) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_web_page_of_another_site_cannot_upload(client: httpx.Client) -> None:
    form: dict[str, Any] = {"files": {"file": ("a", b"x")}, "data": {"purpose": "vision"}}
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert client.post("/v1/files", headers=headers, **form).status_code == 403


def test_left_overs_of_a_killed_upload_are_swept(start_daemon: StartDaemon) -> None:
    first = start_daemon()
    with first.client() as http:
        begin(http, [line("a", "hello")])
    first.stop()
    left = first.home / "state" / "files" / "file-0123.part"
    left.write_bytes(b"half")
    start_daemon(home=first.home)
    assert not left.exists()
