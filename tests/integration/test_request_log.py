"""The lines of requests in the log at level debug."""

from __future__ import annotations

import re
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


def test_without_debug_no_request_is_logged(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        client.get("/api/tags")
    assert daemon.stop() == 0
    assert not [line for line in daemon.lines if "/api/tags" in line]
