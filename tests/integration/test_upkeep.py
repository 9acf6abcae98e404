"""Check, mend, collect and measure the store over HTTP, while the daemon serves."""

from __future__ import annotations

import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from registry.digest import Digest
from tests.conftest import StartDaemon
from tests.echo_models import echo_gguf
from tests.registry_server import FakeRegistry, fake_registry

ONLINE = {"HEARTH_OFFLINE": "0"}
CONTENT = echo_gguf() + random.Random(4).randbytes(3_000_000)


@pytest.fixture
def remote() -> Any:
    with fake_registry() as registry:
        registry.add_model("t/m", CONTENT)
        yield registry


def lines_of(http: httpx.Client, path: str, **fields: Any) -> list[dict[str, Any]]:
    answer = http.post(path, json=fields, timeout=60.0)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def found(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line["finding"] for line in lines if "finding" in line]


def mended(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line["outcome"] for line in lines if "outcome" in line]


def blob(home: Path, content: bytes) -> Path:
    return home / "models" / "blobs" / Digest.of(content).file_name


def flip(path: Path, at: int) -> None:
    """Flip a bit of a byte."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def pull(http: httpx.Client, remote: FakeRegistry) -> str:
    name = f"{remote.address}/t/m"
    answer = http.post("/api/pull", json={"model": name, "stream": False})
    assert answer.json() == {"status": "success"}
    return name


def test_a_flipped_bit_is_found_and_the_blob_is_fetched_again(
    start_daemon: StartDaemon, remote: FakeRegistry
) -> None:
    daemon = start_daemon(env=ONLINE)
    with daemon.client() as http:
        name = pull(http, remote)
        path = blob(daemon.home, CONTENT)
        flip(path, 1_500_000)
        lines = lines_of(http, "/api/fsck")
        (finding,) = found(lines)
        assert (finding["kind"], finding["models"]) == ("content", [name])
        assert lines[-1]["unmended"] == 1
        assert lines[-1]["affected"] == [name]
        (done,) = mended(lines_of(http, "/api/fsck", repair=True))
        assert done["mended"], done
        assert path.read_bytes() == CONTENT
        assert lines_of(http, "/api/fsck")[-1]["findings"] == 0
        assert list((daemon.home / "models" / "tmp").iterdir()) == []


def test_a_copy_of_a_pulled_model_is_mended_from_where_the_first_came(
    start_daemon: StartDaemon, remote: FakeRegistry
) -> None:
    daemon = start_daemon(env=ONLINE)
    with daemon.client() as http:
        name = pull(http, remote)
        assert http.post("/api/copy", json={"source": name, "destination": "mine"}).is_success
        assert http.request("DELETE", "/api/delete", json={"model": name}).is_success
        blob(daemon.home, CONTENT).unlink()
        (done,) = mended(lines_of(http, "/api/fsck", repair=True))
        assert done["mended"], done
        assert blob(daemon.home, CONTENT).read_bytes() == CONTENT


def test_what_nobody_has_any_more_is_told_with_its_models_and_kept(
    start_daemon: StartDaemon, remote: FakeRegistry
) -> None:
    daemon = start_daemon(env=ONLINE)
    with daemon.client() as http:
        name = pull(http, remote)
        remote.blobs.clear()
        path = blob(daemon.home, CONTENT)
        flip(path, 99)
        damaged = path.read_bytes()
        lines = lines_of(http, "/api/fsck", repair=True)
        (done,) = mended(lines)
        assert not done["mended"]
        assert done["models"] == [name]
        assert "cannot be downloaded again" in done["reason"]
        assert lines[-1]["unmended"] == 1
        assert path.read_bytes() == damaged
        assert list((daemon.home / "models" / "tmp").iterdir()) == []


def test_the_bundled_model_is_mended_without_a_network(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as http:
        blobs = sorted((daemon.home / "models" / "blobs").iterdir(), key=os.path.getsize)
        flip(blobs[-1], 12345)
        whole = lines_of(http, "/api/fsck", repair=True)
        (done,) = mended(whole)
        assert done == {
            "path": f"blobs/{blobs[-1].name}",
            "mended": True,
            "how": "from the built-in model",
        }
        assert whole[-1]["unmended"] == 0


def test_a_torn_manifest_is_mended_and_the_model_answers_again(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    path = daemon.home / "models/manifests/registry.ollama.ai/library/echo/latest"
    with daemon.client() as http:
        path.write_bytes(b"{")
        lines = lines_of(http, "/api/fsck", repair=True)
        assert [item["how"] for item in mended(lines)] == ["from a copy"]
        asked = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
        assert http.post("/v1/chat/completions", json=asked).is_success


def test_gc_tells_first_and_then_removes(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as http:
        content = b"nobody needs it"
        digest = Digest.of(content)
        assert http.post(f"/api/blobs/{digest}", content=content).status_code == 201
        assert http.post("/api/gc", json={}).json()["blobs"] == []
        asked = {"grace_s": 0.0, "dry_run": True}
        told = http.post("/api/gc", json=asked).json()
        assert [item["path"] for item in told["blobs"]] == [f"blobs/{digest.file_name}"]
        assert http.get("/api/du").json()["unused"] == len(content)
        removed = http.post("/api/gc", json={"grace_s": 0.0}).json()
        assert removed["blobs"] == told["blobs"]
        assert http.head(f"/api/blobs/{digest}").status_code == 404
        assert http.get("/api/du").json()["unused"] == 0


def test_du_tells_what_models_share(start_daemon: StartDaemon) -> None:
    with start_daemon().client() as http:
        before = {item["name"]: item for item in http.get("/api/du").json()["models"]}
        assert before["echo"]["own"] > 0
        http.post("/api/copy", json={"source": "echo", "destination": "twin"})
        after = {item["name"]: item for item in http.get("/api/du").json()["models"]}
        assert after["twin"]["own"] == after["echo"]["own"] == 0
        assert after["twin"]["shared"] == before["echo"]["size"]


@pytest.mark.parametrize(
    ("path", "fields"), [("/api/fsck", {"repair": 1}), ("/api/gc", {"grace_s": -1})]
)
def test_wrong_fields_are_refused_by_name(
    client: httpx.Client, path: str, fields: dict[str, Any]
) -> None:
    answer = client.post(path, json=fields)
    assert answer.status_code == 400
    assert next(iter(fields)) in answer.json()["error"]


def test_a_web_page_may_not_change_the_store(client: httpx.Client) -> None:
    for path in ("/api/fsck", "/api/gc", "/api/import"):
        answer = client.post(path, headers={"origin": "https://evil.example"})
        assert answer.status_code == 403
        assert client.get(path).status_code == 405


def test_a_model_in_memory_leaves_it_when_it_is_deleted(start_daemon: StartDaemon) -> None:
    with start_daemon().client() as http:
        asked = {"model": "echo", "prompt": "", "keep_alive": -1, "stream": False}
        assert http.post("/api/generate", json=asked).is_success
        assert [item["name"] for item in http.get("/api/ps").json()["models"]] == ["echo:latest"]
        assert http.request("DELETE", "/api/delete", json={"model": "echo"}).is_success
        assert http.get("/api/ps").json()["models"] == []


def test_gc_leaves_the_files_of_a_model_in_memory(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    manifest = daemon.home / "models/manifests/registry.ollama.ai/library/echo/latest"
    with daemon.client() as http:
        asked = {"model": "echo", "prompt": "", "keep_alive": -1, "stream": False}
        assert http.post("/api/generate", json=asked).is_success
        manifest.unlink()  # as another program that shares the store does
        path = blob(daemon.home, echo_gguf(salt="echo"))
        http.post("/api/gc", json={"grace_s": 0.0})
        assert path.exists()


def test_a_repair_whose_client_leaves_goes_on_later_where_it_was(
    start_daemon: StartDaemon, remote: FakeRegistry
) -> None:
    daemon, waiting, go_on = start_daemon(env=ONLINE), threading.Event(), threading.Event()

    def hold(served_bytes: int) -> None:
        if served_bytes > len(CONTENT) * 2 // 3 and not go_on.is_set():
            waiting.set()
            go_on.wait(60)

    with daemon.client() as http:
        pull(http, remote)
        blob(daemon.home, CONTENT).unlink()
        remote.served_bytes, remote.before_part = 0, hold
        with http.stream("POST", "/api/fsck", json={"repair": True}) as answer:
            for line in map(json.loads, answer.iter_lines()):
                is_repairing = str(line.get("status")).startswith("repairing")
                if is_repairing and line["completed"] > len(CONTENT) // 2:
                    break
            assert waiting.wait(60)
        remote.await_clients_left()
        go_on.set()
        remote.await_quiet()
        with http.stream("POST", "/api/fsck", json={"repair": True}) as answer:
            lines = [json.loads(line) for line in answer.iter_lines()]
        assert mended(lines)[0]["mended"]
        assert max(line.get("resumed", 0) for line in lines) > len(CONTENT) // 2
        assert blob(daemon.home, CONTENT).read_bytes() == CONTENT
