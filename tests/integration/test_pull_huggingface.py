"""Pulls from Hugging Face, from a local server that speaks the Hub's API."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.hub_server import COMMIT, Hub, hub_environment, hub_server

HF_TOKEN = "hf_canarycanarycanary"
REPO = "someone/tiny-gguf"


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A Hub with two quantizations of one model."""
    with hub_server() as hub:
        files = {
            "tiny-Q4_K_M.gguf": echo_gguf(salt="q4"),
            "tiny-Q8_0.gguf": echo_gguf(salt="q8") + bytes(4096),
        }
        hub.add(REPO, files)
        yield hub


@pytest.fixture
def daemon(start_daemon: StartDaemon, hub: Hub, tmp_path: Path) -> RunningDaemon:
    """A daemon whose Hub is the local one."""
    return start_daemon(env=hub_environment(hub.server.url, tmp_path) | {"HF_TOKEN": HF_TOKEN})


def pull(daemon: RunningDaemon, name: str) -> list[dict[str, object]]:
    with daemon.client() as http:
        response = http.post("/api/pull", json={"model": name})
    return [json.loads(line) for line in response.iter_lines() if line]


def digests(lines: list[dict[str, object]]) -> set[object]:
    return {line["digest"] for line in lines if "digest" in line}


def test_a_quantization_is_found_and_runs(daemon: RunningDaemon, hub: Hub) -> None:
    lines = pull(daemon, f"hf.co/{REPO}:q4_k_m")
    wanted = hashlib.sha256(hub.repositories[REPO]["tiny-Q4_K_M.gguf"]).hexdigest()
    assert lines[-1] == {"status": "success", "model": f"hf.co/{REPO}:q4_k_m"}
    assert digests(lines) == {f"sha256:{wanted}"}
    with daemon.client() as http:
        body = {"model": f"hf.co/{REPO}:Q4_K_M", "prompt": "hi", "stream": False}
        assert http.post("/api/generate", json=body).json()["response"] == "hi"


def test_without_one_the_choice_is_said(daemon: RunningDaemon, hub: Hub) -> None:
    lines = pull(daemon, f"hf.co/{REPO}")
    wanted = hashlib.sha256(hub.repositories[REPO]["tiny-Q8_0.gguf"]).hexdigest()
    assert digests(lines) == {f"sha256:{wanted}"}
    assert [line for line in lines if str(line["status"]).startswith("choosing Q8_0 of 2")]


def test_a_file_and_a_revision_can_be_named(daemon: RunningDaemon, hub: Hub) -> None:
    lines = pull(daemon, f"hf://{REPO}:tiny-Q8_0.gguf@v1")
    assert lines[-1]["model"] == f"hf.co/{REPO}:tiny-Q8_0.gguf-v1"
    assert hub.server.requests("/revision/v1")


def test_the_token_goes_to_the_hub_and_nowhere_else(daemon: RunningDaemon, hub: Hub) -> None:
    pull(daemon, f"hf.co/{REPO}:Q4_K_M")
    asked = [seen for seen in hub.server.seen if "resolve" in seen.path]
    assert [seen for seen in asked if HF_TOKEN in json.dumps(seen.headers)] == asked != []
    assert hub.mirror.seen
    for seen in hub.mirror.seen:
        assert HF_TOKEN not in json.dumps(seen.headers)
    assert "canary" not in "".join(daemon.lines)


def test_a_file_of_the_users_cache_is_linked_and_not_fetched(
    daemon: RunningDaemon, hub: Hub, tmp_path: Path
) -> None:
    content = hub.repositories[REPO]["tiny-Q4_K_M.gguf"]
    digest = hashlib.sha256(content).hexdigest()
    folder = tmp_path / "hf" / "hub" / f"models--{REPO.replace('/', '--')}"
    (folder / "blobs").mkdir(parents=True)
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "blobs" / digest).write_bytes(content)
    (folder / "snapshots" / COMMIT / "tiny-Q4_K_M.gguf").symlink_to(folder / "blobs" / digest)
    lines = pull(daemon, f"hf.co/{REPO}:Q4_K_M")
    assert lines[-1]["status"] == "success"
    assert hub.mirror.seen == []
    blob = daemon.home / "models" / "blobs" / f"sha256-{digest}"
    assert blob.stat().st_ino == (folder / "blobs" / digest).stat().st_ino


def test_refusals_of_the_hub_are_explained(daemon: RunningDaemon, hub: Hub) -> None:
    hub.server.special["/api/models/someone/gated"] = lambda handler: handler.reply(
        403, b"{}", X_Error_Code="GatedRepo"
    )
    hub.server.special["/api/models/someone/none"] = lambda handler: handler.reply(
        404, b"{}", X_Error_Code="RepoNotFound"
    )
    gated = pull(daemon, "hf.co/someone/gated")[-1]
    missing = pull(daemon, "hf.co/someone/none")[-1]
    absent = pull(daemon, f"hf.co/{REPO}:Q2_K")[-1]
    assert (gated["code"], "accept its terms at" in str(gated["error"])) == (
        "registry_denied",
        True,
    )
    assert missing["code"] == "remote_model_not_found"
    assert "it has Q4_K_M, Q8_0" in str(absent["error"])


@pytest.mark.parametrize("status", [401, 403])
def test_files_of_a_gated_repository_name_the_page_and_the_token(
    status: int, daemon: RunningDaemon, hub: Hub
) -> None:
    hub.server.special[f"/{REPO}/resolve/{COMMIT}/tiny-Q8_0.gguf"] = lambda handler: handler.reply(
        status, b"", X_Error_Code="GatedRepo"
    )
    last = pull(daemon, f"hf.co/{REPO}:Q8_0")[-1]
    assert last["code"] == "registry_denied"
    assert f"accept its terms at {hub.server.url}/{REPO}, then set HF_TOKEN" in str(last["error"])


def test_a_damaged_model_is_mended_from_its_repository(daemon: RunningDaemon, hub: Hub) -> None:
    content = echo_gguf(salt="large") + bytes(range(256)) * 4000
    hub.repositories.clear()
    hub.add(REPO, {"tiny-Q8_0.gguf": content})
    pull(daemon, f"hf.co/{REPO}")
    hub.add(REPO, {"tiny-Q4_0.gguf": echo_gguf(salt="new")})
    digest = hashlib.sha256(content).hexdigest()
    path = daemon.home / "models" / "blobs" / f"sha256-{digest}"
    damaged = bytearray(content)
    damaged[500_000] ^= 6
    path.write_bytes(damaged)
    hub.mirror.served_bytes = 0
    with daemon.client() as http:
        lines = http.post("/api/fsck", json={"repair": True}).text.splitlines()
    assert json.loads(lines[-1])["unmended"] == 0
    assert path.read_bytes() == content
    assert len(content) <= hub.mirror.served_bytes < 1.1 * len(content)  # fetched whole, once
