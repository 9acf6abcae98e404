"""An encoder on both backends through a real daemon: PARAMETER backend torch, the same vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from tests.conftest import running_daemon
from tests.unit.runner.backends.llamacpp.conftest import TinyModel, write_model

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

TEXTS = ["warm fire", "a b c", "fire", "z"]


def upload(client: httpx.Client, file: Path) -> dict[str, str]:
    content = file.read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    client.post(f"/api/blobs/{digest}", content=content).raise_for_status()
    return {file.name: digest}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Of a daemon with the encoders "left" on torch and "right" on llamacpp."""
    folder = tmp_path_factory.mktemp("files")
    encoder = TinyModel(architecture="bert", context_length=512, pooling=1)
    file = write_model(folder / "encoder.gguf", encoder)
    with running_daemon(tmp_path_factory.mktemp("home")) as daemon, daemon.client() as http:
        files = upload(http, file)
        for name, parameters in (("left", {"backend": "torch"}), ("right", {})):
            body = {"model": name, "files": files, "parameters": parameters, "stream": False}
            http.post("/api/create", json=body).raise_for_status()
        yield http


def embedded(client: httpx.Client, model: str, texts: list[str]) -> list[list[float]]:
    response = client.post("/api/embed", json={"model": model, "input": texts}, timeout=60)
    assert response.status_code == 200, response.text
    vectors: list[list[float]] = response.json()["embeddings"]
    return vectors


def test_an_encoder_gives_the_same_vectors_on_both_backends(client: httpx.Client) -> None:
    left, right = (embedded(client, model, TEXTS) for model in ("left", "right"))
    assert len(left) == len(right) == len(TEXTS)
    for one, other in zip(left, right, strict=True):
        assert one == pytest.approx(other, abs=2e-3)


def test_an_encoder_on_torch_generates_nothing(client: httpx.Client) -> None:
    body = {"model": "left", "prompt": "warm", "stream": False}
    answer = client.post("/api/generate", json=body, timeout=60)
    assert answer.status_code == 400
    assert "left" in answer.json()["error"]
