"""Clients that ask and do not read."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from registry.store import Store
from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import install_echo

PLACES = 16
ANSWER_TOKENS = 1900  # more than the buffers on the way hold
TEXT = "".join(f"{number} " for number in range(ANSWER_TOKENS))[:ANSWER_TOKENS]  # never repeats
DEADLINE_S = 120.0
CHAT = {"messages": [{"role": "user", "content": TEXT}]}
STREAMS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": TEXT, "max_tokens": ANSWER_TOKENS},
    "/v1/messages": {**CHAT, "max_tokens": ANSWER_TOKENS},
    "/v1/responses": {"input": TEXT},
    "/api/chat": CHAT,
    "/api/generate": {"prompt": TEXT},
}
ENDS = (b"[DONE]", b"message_stop", b"response.completed", b'"done":true')


def until(reached: Callable[[], bool]) -> None:
    limit = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < limit


class Unread:
    """A client that asks for a stream and reads nothing before rest."""

    def __init__(self, daemon: RunningDaemon, path: str, fields: dict[str, Any]) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(DEADLINE_S)
        self._socket.connect(("127.0.0.1", daemon.port))
        body = json.dumps({"model": "echo", "stream": True, **fields}).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        head += "content-type: application/json\r\nconnection: close\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def rest(self) -> bytes:
        """All that the daemon sent and sends."""
        parts = iter(lambda: self._socket.recv(1 << 20), b"")
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()


def stats(client: httpx.Client) -> dict[str, Any]:
    return dict(client.get("/api/ps").json()["models"][0]["stats"])


def honest(client: httpx.Client) -> str:
    asked = {"model": "echo", "messages": [{"role": "user", "content": "honest"}]}
    answer = client.post("/v1/chat/completions", json=asked).json()
    return str(answer["choices"][0]["message"]["content"])


@pytest.fixture
def daemon(start_daemon: StartDaemon, tmp_path: Path) -> RunningDaemon:
    """Without drafts: echoes are all foreseen, and come in too few events to fill the buffers."""
    home = tmp_path / "home"
    store = Store.open(home / "models")
    install_echo(store, "echo", parameters={"draft_num_predict": 0})
    store.close()
    return start_daemon((), env={"HEARTH_NUM_PARALLEL": str(PLACES)}, home=home)


def test_streams_that_nobody_reads_give_up_their_places_and_go_on_when_they_are_read(
    daemon: RunningDaemon,
) -> None:
    with daemon.client() as client, ExitStack() as opened:
        assert honest(client) == "honest"
        unread = []
        for number in range(PLACES):
            path, fields = list(STREAMS.items())[number % len(STREAMS)]
            unread.append(Unread(daemon, path, fields))
            opened.callback(unread[-1].close)
        until(lambda: stats(client)["paused"] == PLACES)
        assert stats(client)["running"] == 0
        made = stats(client)["completion_tokens"]
        assert made < PLACES * ANSWER_TOKENS / 2
        assert honest(client) == "honest"
        assert stats(client)["completion_tokens"] == made + len("honest") + 1
        assert stats(client)["paused"] == PLACES
        for stream in unread:
            answer = stream.rest()
            assert any(end in answer for end in ENDS)
        assert stats(client)["completion_tokens"] >= made + PLACES * (ANSWER_TOKENS // 2)
        assert stats(client)["paused"] == 0


def test_a_paused_stream_whose_client_leaves_is_forgotten(daemon: RunningDaemon) -> None:
    with daemon.client() as client:
        honest(client)
        unread = Unread(daemon, "/v1/chat/completions", STREAMS["/v1/chat/completions"])
        until(lambda: stats(client)["paused"] == 1)
        unread.close()
        until(lambda: stats(client)["paused"] == 0)
        assert stats(client)["cancelled"] == 1
