"""The lines of requests in the log at level debug, and in the access log."""

from __future__ import annotations

import json
import re
import stat
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.conftest import StartDaemon

CANARY = "canary-in-the-coal-mine"


def test_each_request_is_a_line_with_its_model_and_tokens_and_no_words(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(env={"HEARTH_LOG_LEVEL": "debug"})
    chat: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": CANARY}]}
    with daemon.client() as client:
        client.post("/v1/chat/completions", json={**chat, "max_tokens": 3})
        client.post("/api/chat", json={**chat, "stream": True}, headers={"x-api-key": CANARY})
        client.post("/v1/embeddings", json={"model": "echo", "input": CANARY})
        client.post("/api/embed", json={"model": "echo", "input": [CANARY]})
        client.post("/api/show", json={"model": "no-such"})
        client.post("/v1/chat/completions", content=CANARY)
        client.get(f"/api/tags?{CANARY}")
        client.get("/", headers={"host": CANARY})
    assert daemon.stop() == 0
    text = "".join(daemon.lines)
    assert CANARY not in text
    lines = re.findall(r" DEBUG hearth\.http: (.*)", text)
    expected = (
        r"POST /v1/chat/completions 200 T model=echo prompt_tokens=\d+ cached_tokens=0 "
        r"completion_tokens=3 finish=length",
        r"POST /api/chat 200 T model=echo prompt_tokens=\d+ cached_tokens=\d+ "
        r"completion_tokens=\d+ finish=stop",
        r"POST /v1/embeddings 200 T model=echo prompt_tokens=\d+",
        r"POST /api/embed 200 T model=echo prompt_tokens=\d+",
        r"POST /api/show 404 T model=no-such",
        r"POST /v1/chat/completions 400 T",
        r"GET /api/tags 200 T",
        r"GET / 403 T",
    )
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern.replace(" T", r" \d+\.\d{3} s"), line)


def test_the_access_log_has_who_asked_for_what_and_no_words(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={"HEARTH_ACCESS_LOG": "1"})
    chat: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": CANARY}]}
    with daemon.client() as client:
        made = client.post("/api/keys", json={"name": "walker", "scopes": ["inference"]})
        key = made.json()["key"]
        keyed = {"authorization": f"Bearer {key}"}
        said = client.post(
            "/v1/chat/completions?token=" + CANARY,
            json={**chat, "max_tokens": 3, "user": CANARY},
            headers={**keyed, "x-request-id": "my-id", "user-agent": CANARY, "referer": CANARY},
        )
        streamed = client.post("/api/chat", json={**chat, "stream": True}, headers=keyed)
        client.post("/v1/embeddings", json={"model": "echo", "input": CANARY}, headers=keyed)
        client.delete("/api/delete", headers=keyed)
        client.post("/v1/chat/completions", json=chat, headers={"x-api-key": CANARY})
        client.get("/api/tags", headers={"host": CANARY})
        client.get("/health%0d%0aforged")
    assert daemon.stop() == 0
    file = daemon.home / "state" / "access.log"
    text = file.read_text()
    assert CANARY not in text
    assert key not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(each["method"], each["path"], each["status"], each["key"]) for each in lines] == [
        ("POST", "/api/keys", 200, None),
        ("POST", "/v1/chat/completions", 200, "walker"),
        ("POST", "/api/chat", 200, "walker"),
        ("POST", "/v1/embeddings", 200, "walker"),
        ("DELETE", "/api/delete", 403, "walker"),
        ("POST", "/v1/chat/completions", 401, None),
        ("GET", "/api/tags", 403, None),
        ("GET", "/health\r\nforged", 401, None),
    ]
    chatted, told = lines[1], said.json()
    began = datetime.fromisoformat(chatted["time"])
    assert timedelta(0) <= datetime.now(UTC) - began < timedelta(minutes=5)
    assert (chatted["peer"], chatted["model"]) == ("127.0.0.1", "echo")
    assert chatted["request_id"] == "my-id"
    assert 0 < chatted["duration_s"] < 300
    assert chatted["bytes"] == len(said.content)
    assert chatted["prompt_tokens"] == told["usage"]["prompt_tokens"]
    assert (chatted["completion_tokens"], chatted["finish_reason"]) == (3, "length")
    assert lines[2]["bytes"] == len(streamed.content)
    assert lines[2]["request_id"] == streamed.headers["x-request-id"]
    assert (lines[3]["prompt_tokens"], lines[3]["finish_reason"]) != (None, "stop")
    assert lines[4]["prompt_tokens"] is None


def test_without_debug_no_request_is_logged(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        client.get("/api/tags")
    assert daemon.stop() == 0
    assert not [line for line in daemon.lines if "/api/tags" in line]
    assert not (daemon.home / "state" / "access.log").exists()
