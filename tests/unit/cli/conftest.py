"""A daemon for unit tests: answers the native routes from a table, over the client's transport."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli import connection
from runner.client import Client
from tests.http_handlers import HandlerTransport

VERSION = {"version": "0.32.0", "hearth": "0.1.0", "name": "hearth"}


class FakeDaemon:
    """Answers by (method, path); remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.answers: dict[tuple[str, str], Callable[[Any], httpx.Response]] = {}
        self.reply("GET", "/api/version", VERSION)

    def reply(self, method: str, path: str, body: Any, status: int = 200) -> None:
        """Answer with a JSON body."""
        self.answers[method, path] = lambda request: httpx.Response(status, json=body)

    def stream(self, path: str, *lines: dict[str, Any]) -> None:
        """Answer with lines of NDJSON."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        self.answers["POST", path] = lambda request: httpx.Response(200, text=text)

    def asked(self, path: str) -> list[Any]:
        """The bodies of the requests to path."""
        return [body for _, asked, body in self.requests if asked == path]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """The transport's handler."""
        content = request.read()
        path = request.url.path
        is_json = request.headers.get("content-type") == "application/json"
        self.requests.append((request.method, path, json.loads(content) if is_json else content))
        answer = self.answers.get((request.method, path))
        return answer(request) if answer else httpx.Response(404, json={"error": f"no {path}"})


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeDaemon:
    """The daemon that every command of this test talks to."""
    fake = FakeDaemon()
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        connection,
        "new_client",
        lambda settings: Client("http://127.0.0.1:1", HandlerTransport(fake)),
    )
    return fake
