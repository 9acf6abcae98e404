"""Pulls of models that read images: their projector comes along."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from registry.digest import Digest
from registry.manifest import PROJECTOR_TYPE, Descriptor, Manifest
from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.gguf_files import projector_file
from tests.hub_server import Hub, hub_environment, hub_server
from tests.split_files import parts_of
from tests.vision_files import write_vision_model

REPO = "someone/seeing-gguf"


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A Hub with two quantizations of a model, and three projectors for it."""
    with hub_server() as hub:
        files = {f"m-{kind}.gguf": echo_gguf(salt=kind) for kind in ("Q4_K_M", "Q8_0")}
        kinds = ("BF16", "F16", "F32")
        width = 4096  # large enough that its origin is kept
        projectors = {f"mmproj-m-{kind}.gguf": projector_file(width, salt=kind) for kind in kinds}
        hub.add(REPO, files | projectors)
        yield hub


@pytest.fixture
def daemon(start_daemon: StartDaemon, hub: Hub, tmp_path: Path) -> RunningDaemon:
    return start_daemon(env=hub_environment(hub.server.url, tmp_path))


def pull(daemon: RunningDaemon, name: str) -> list[dict[str, Any]]:
    with daemon.client() as http:
        response = http.post("/api/pull", json={"model": name})
    return [json.loads(line) for line in response.iter_lines() if line]


def statuses(lines: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(line["status"] for line in lines if "status" in line))


def of_repository(daemon: RunningDaemon, tag: str = "latest") -> list[Descriptor]:
    """The projector layers of the installed model."""
    file = daemon.home.joinpath("models", "manifests", "hf.co", *REPO.split("/"), tag)
    return list(Manifest.from_bytes(file.read_bytes()).of_type(PROJECTOR_TYPE))


def test_the_best_projector_comes_along_once_and_is_mended_from_its_repository(
    daemon: RunningDaemon, hub: Hub
) -> None:
    lines = pull(daemon, f"hf.co/{REPO}:Q4_K_M")
    assert lines[-1]["status"] == "success", lines
    assert statuses(lines)[1] == "with the multimodal projector mmproj-m-F16.gguf (1.0 MB)"
    (layer,) = of_repository(daemon, "Q4_K_M")
    content = hub.repositories[REPO]["mmproj-m-F16.gguf"]
    assert layer.digest == Digest.of(content)
    with daemon.client() as http:
        body = {"model": f"hf.co/{REPO}:Q4_K_M", "prompt": "hi", "stream": False}
        assert http.post("/api/generate", json=body).json()["response"] == "hi"
    fetched = hub.mirror.served_bytes
    assert pull(daemon, f"hf.co/{REPO}:Q4_K_M")[-1]["status"] == "success"
    assert hub.mirror.served_bytes == fetched
    path = daemon.home / "models" / "blobs" / layer.digest.file_name
    path.write_bytes(content[:-9000] + bytes([1]) * 9000)
    hub.add(REPO, {"m-Q8_0.gguf": echo_gguf(salt="new")})
    with daemon.client() as http:
        told = http.post("/api/fsck", json={"repair": True}).text.splitlines()
    assert json.loads(told[-1])["unmended"] == 0, told
    assert path.read_bytes() == content
    assert hub.mirror.served_bytes - fetched == len(content)


def test_a_model_in_parts_is_joined_and_sees(
    daemon: RunningDaemon, hub: Hub, tmp_path: Path
) -> None:
    files = write_vision_model(tmp_path, "idefics3")
    hub.repositories.clear()
    hub.add(REPO, parts_of(files.model, 2, "m"))
    hub.add(REPO, {"mmproj-m.gguf": files.projector.read_bytes()})
    lines = pull(daemon, f"hf.co/{REPO}")
    assert lines[-1]["status"] == "success", lines
    assert len(of_repository(daemon)) == 1
    fetched = hub.mirror.served_bytes
    assert statuses(pull(daemon, f"hf.co/{REPO}"))[-2:] == [
        "with the multimodal projector mmproj-m.gguf (96 KB)",
        "success",
    ]
    assert hub.mirror.served_bytes == fetched
    with daemon.client(120.0) as http:
        body = {"model": f"hf.co/{REPO}", "prompt": "hi", "stream": False}
        answer = http.post("/api/generate", json=body | {"options": {"num_predict": 4}}).json()
        shown = http.post("/api/show", json=body).json()
    assert answer.get("eval_count"), answer
    assert "vision" in shown["capabilities"]
