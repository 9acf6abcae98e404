"""HEARTH_RATE_LIMIT on every surface, by key and by address."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import StartDaemon

LIMITED = {"HEARTH_RATE_LIMIT": "3"}


def spent(client: httpx.Client) -> httpx.Client:
    """A client that has used up its requests."""
    for _ in range(3):
        assert client.get("/v1/models").status_code == 200
    return client


def test_every_surface_tells_it_in_its_own_words(start_daemon: StartDaemon) -> None:
    with start_daemon(env=LIMITED).client() as client:
        spent(client)
        answers = [
            client.post(path, json={"model": "echo"})
            for path in ("/v1/chat/completions", "/api/chat", "/v1/messages", "/nowhere")
        ]
        for answer in answers:
            assert answer.status_code == 429
            assert 0 < int(answer.headers["retry-after"]) <= 20
        openai, ollama, anthropic, _ = (answer.json() for answer in answers)
        assert openai["error"]["code"] == "rate_limit_exceeded"
        assert openai["error"]["type"] == "rate_limit_error"
        assert "3 requests per minute" in ollama["error"]
        assert anthropic["error"]["type"] == "rate_limit_error"


def test_public_paths_stay_open(start_daemon: StartDaemon) -> None:
    with start_daemon(env=LIMITED).client() as client:
        spent(client)
        for path in ("/", "/health", "/ready"):
            assert client.get(path).status_code == 200


def test_each_key_has_its_own_requests_and_wrong_ones_share_the_addresss(
    start_daemon: StartDaemon,
) -> None:
    with start_daemon(env=LIMITED).client() as client:
        keys: list[str] = []
        for name in ("one", "two"):
            headers = {"authorization": f"Bearer {keys[0]}"} if keys else {}
            asked: dict[str, Any] = {"name": name, "scopes": ["admin"]}
            keys.append(client.post("/api/keys", json=asked, headers=headers).json()["key"])

        def ask(key: str) -> int:
            return client.get("/v1/models", headers={"x-api-key": key}).status_code

        # making the second key was the first one's first request
        assert [ask(keys[0]) for _ in range(3)] == [200, 200, 429]
        assert [ask(keys[1]) for _ in range(4)] == [200, 200, 200, 429]
        assert [ask("wrong") for _ in range(4)] == [401, 401, 401, 429]


@pytest.mark.parametrize("limit", ["0", ""])
def test_it_is_off_unless_it_is_set(start_daemon: StartDaemon, limit: str) -> None:
    with start_daemon(env={"HEARTH_RATE_LIMIT": limit}).client() as client:
        assert {client.get("/api/version").status_code for _ in range(200)} == {200}
