"""/openapi.json and /docs of a real daemon; real answers have the described shapes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from runner.server.app import ROUTES
from runner.server.errors import surface_of
from runner.server.openapi.document import ERRORS, describe
from runner.server.openapi.examples import EXAMPLES
from tests.conftest import StartDaemon

CHAT = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
GENERATE = {"model": "echo", "prompt": "hello"}
ASKED: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/health", None),
    ("GET", "/ready", None),
    ("GET", "/api/version", None),
    ("GET", "/api/keys", None),
    ("GET", "/api/tags", None),
    ("GET", "/api/ps", None),
    ("GET", "/api/du", None),
    ("POST", "/api/gc", {"dry_run": True}),
    ("POST", "/api/show", {"model": "echo"}),
    ("POST", "/api/chat", {**CHAT, "stream": False}),
    ("POST", "/api/generate", {**GENERATE, "stream": False}),
    ("GET", "/v1/models", None),
    ("POST", "/v1/chat/completions", {**CHAT, "logprobs": True}),
    ("POST", "/v1/completions", {**GENERATE, "logprobs": 1}),
    ("POST", "/v1/responses", {"model": "echo", "input": "hello"}),
    ("GET", "/v1/files", None),
    ("GET", "/v1/batches", None),
    ("POST", "/v1/messages", {**CHAT, "max_tokens": 8}),
    ("POST", "/v1/messages/count_tokens", CHAT),
    ("POST", "/apply-template", CHAT),
    ("POST", "/tokenize", {**GENERATE, "return_token_strs": True}),
    ("POST", "/tokenize", {**GENERATE, "with_pieces": True}),
    ("POST", "/detokenize", {"model": "echo", "tokens": [104, 105]}),
]


@pytest.mark.parametrize(("method", "path", "body"), ASKED)
def test_answers_have_the_described_shape(
    client: httpx.Client, method: str, path: str, body: dict[str, Any] | None
) -> None:
    answer = client.request(method, path, json=body)
    assert answer.status_code == 200, answer.text
    (gives,) = [each.gives for each in ROUTES if each.path == path and method == each.method]
    assert gives is not None
    TypeAdapter(gives).validate_json(answer.content)


@pytest.mark.parametrize(
    "path", sorted({path.path for path in ROUTES if path.takes} - {"/api/blobs/upload"})
)  # that one takes any bytes
def test_errors_have_the_described_shape(client: httpx.Client, path: str) -> None:
    method = next(each.method for each in ROUTES if each.path == path and each.takes)
    answer = client.request(method, path.replace("{digest}", "sha256-0"), content=b"[0]")
    assert answer.status_code in (400, 404), answer.text  # what the path names comes first
    TypeAdapter(ERRORS[type(surface_of(path))]).validate_json(answer.content)


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples_are_answered_in_the_described_shape(client: httpx.Client, path: str) -> None:
    answer = client.post(path, json={**EXAMPLES[path], "model": "echo"})
    assert answer.status_code == 200, answer.text
    (gives,) = [each.gives for each in ROUTES if (each.path, each.method) == (path, "POST")]
    assert gives is not None
    TypeAdapter(gives).validate_json(answer.content)


def test_the_document_is_that_of_all_paths(client: httpx.Client) -> None:
    version = client.get("/api/version").json()["hearth"]
    first, second = client.get("/openapi.json"), client.get("/openapi.json")
    assert first.headers["content-type"] == "application/json"
    assert first.json() == describe(ROUTES, version)
    assert first.content == second.content


def test_the_page_runs_its_own_code_only(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'none'; ")


def test_with_keys_the_page_is_public_and_the_document_needs_one(start_daemon: StartDaemon) -> None:
    with start_daemon().client() as client:
        key = client.post("/api/keys", json={"name": "laptop"}).json()["key"]
        assert client.get("/docs").status_code == 200
        assert client.get("/openapi.json").status_code == 401
        assert client.get("/openapi.json", headers={"x-api-key": key}).status_code == 200
