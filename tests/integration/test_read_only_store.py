"""A store that this user cannot write to is served; what would write is refused in words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from registry.store import Store
from runner.library.library import Library
from runner.server.app import build_services, create_app, opened
from runner.server.keys import KeyRing
from runner.settings import load
from tests.echo_models import install_echo

DIGEST = "sha256:" + "0" * 64


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    store = Store.open(tmp_path / "models")
    install_echo(store, "echo", system="Be kind.")
    store.close()
    settings = replace(load({"HEARTH_HOME": str(tmp_path), "HEARTH_OFFLINE": "1"}))
    keys = KeyRing(tmp_path / "keys.json")
    library = Library(Store.open(tmp_path / "models", read_only=True), settings, "test")
    services = build_services(settings, settings.address, keys, library)
    async with opened(services):
        transport = httpx.ASGITransport(create_app(services))
        client = httpx.AsyncClient(
            transport=transport,
            base_url=settings.address.url,
            headers={"x-api-key": services.owner_token},
        )
        async with client:
            yield client


async def test_its_models_are_listed_shown_checked_and_run(http: httpx.AsyncClient) -> None:
    assert [item["name"] for item in (await http.get("/api/tags")).json()["models"]] == [
        "echo:latest"
    ]
    assert (await http.post("/api/show", json={"model": "echo"})).json()["system"] == "Be kind."
    asked = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
    answer = await http.post("/v1/chat/completions", json=asked)
    assert answer.json()["choices"][0]["message"]["content"] == "hi"
    assert '"findings":0' in (await http.post("/api/fsck", json={})).text
    assert (await http.get("/api/du")).json()["models"][0]["name"] == "echo"
    assert (await http.post("/api/gc", json={"dry_run": True})).is_success


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/create", {"model": "m", "from": "echo", "system": "x", "stream": False}),
        ("POST", "/api/copy", {"source": "echo", "destination": "m"}),
        ("DELETE", "/api/delete", {"model": "echo"}),
        ("POST", "/api/gc", {}),
        ("POST", "/api/fsck", {"repair": True}),
        ("POST", "/api/import", {"source": "ollama"}),
    ],
)
async def test_what_would_write_is_refused(
    http: httpx.AsyncClient, method: str, path: str, body: dict[str, object]
) -> None:
    answer = await http.request(method, path, json=body)
    assert answer.status_code == 409, answer.text
    assert answer.json()["error"].endswith("the model store is read-only")
