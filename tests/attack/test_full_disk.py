"""A disk without room: every writing route says 507 and why, and goes on when there is room."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.attack.test_owners import create_batch, line, upload
from tests.conftest import RunningDaemon, running_daemon
from tests.echo_models import echo_gguf
from tests.registry_server import FakeRegistry, fake_registry

DISK_BYTES = 48 << 20
CONTENT = echo_gguf() + bytes(4 << 20)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def remote() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        registry.add_model("any/model", CONTENT)
        yield registry


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def writes(http: httpx.Client, address: str, file: str) -> dict[str, httpx.Response]:
    """Every route that writes something."""
    digest = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    question: dict[str, Any] = {"model": "echo", "input": "hi"}
    pull = {"model": f"{address}/any/model", "stream": False}
    return {
        "file": upload(http, bytes(1 << 20), "user_data"),
        "batch": create_batch(http, file),
        "response": http.post("/v1/responses", json=question),
        "background": http.post("/v1/responses", json={**question, "background": True}),
        "blob": http.post(f"/api/blobs/{digest}", content=CONTENT),
        "pull": http.post("/api/pull", json=pull),
        "create": http.post(
            "/api/create",
            json={"model": "made", "from": "echo", "system": "x" * 9000, "stream": False},
        ),
        "copy": http.post("/api/copy", json={"source": "echo", "destination": "copied"}),
        "key": http.post("/api/keys", json={"name": "a", "scopes": ["admin"]}),
    }


def test_a_full_disk_is_507_and_afterwards_all_is_well(disk: Path, remote: FakeRegistry) -> None:
    with running_daemon(disk / "home", env={"HEARTH_OFFLINE": "0"}) as daemon:
        with daemon.client() as http:
            token = json.loads((daemon.home / "state" / "daemon.json").read_text())["token"]
            http.headers["Authorization"] = f"Bearer {token}"
            file = upload(http, line("1", "hi")).json()["id"]
            respond(http)
            filler = fill(disk)
            for name, answer in writes(http, remote.address, file).items():
                assert answer.status_code == 507, (name, answer.text)
                assert "cannot" in answer.text, (name, answer.text)
                assert str(disk) not in answer.text
            asked = {"model": "echo", "prompt": "hi", "stream": False}
            assert http.post("/api/generate", json=asked).status_code == 200
            filler.unlink()
            for name, answer in writes(http, remote.address, file).items():
                assert answer.status_code < 300, (name, answer.text)
        no_traceback(daemon)


def respond(http: httpx.Client) -> None:
    assert http.post("/v1/responses", json={"model": "echo", "input": "hi"}).status_code == 200


def no_traceback(daemon: RunningDaemon) -> None:
    assert not [text for text in daemon.lines if "Traceback" in text]
