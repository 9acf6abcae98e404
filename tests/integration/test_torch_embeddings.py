"""An encoder through a real daemon, PARAMETER backend torch: the same vectors as llama.cpp."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from runner.types import LoadPlan
from tests.conftest import running_daemon
from tests.daemon_processes import PYTORCH
from tests.unit.runner.backends.conftest import TinyModel, write_model

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

TEXTS = ["warm fire", "a b c", "fire", "z"]


def upload(client: httpx.Client, file: Path) -> dict[str, str]:
    content = file.read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    client.post(f"/api/blobs/{digest}", content=content).raise_for_status()
    return {file.name: digest}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = TinyModel(architecture="bert", context_length=512, pooling=1)
    return write_model(tmp_path_factory.mktemp("files") / "encoder.gguf", model)


@pytest.fixture(scope="module")
def client(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Of a daemon with the encoder as "glow" on torch."""
    with (
        running_daemon(tmp_path_factory.mktemp("home"), preloaded=PYTORCH) as daemon,
        daemon.client() as http,
    ):
        body = {
            "model": "glow",
            "files": upload(http, encoder),
            "parameters": {"backend": "torch"},
            "stream": False,
        }
        http.post("/api/create", json=body).raise_for_status()
        yield http


def vectors_of_llamacpp(file: Path) -> list[list[float]]:
    from runner.backends.llamacpp import load

    plan = LoadPlan(str(file), "llamacpp", 512, 512, 4, threads=1, embedding=True)
    model = load(plan, lambda _share: None)
    try:
        encode = model.tokenizer.encode
        return model.backend.embed(
            [encode(text, add_bos=True, parse_special=False) for text in TEXTS]
        )
    finally:
        model.backend.close()


def test_an_encoder_gives_the_vectors_that_llamacpp_computes(
    client: httpx.Client, encoder: Path
) -> None:
    body = {"model": "glow", "input": TEXTS}
    response = client.post("/api/embed", json=body, timeout=60)
    assert response.status_code == 200, response.text
    found, wanted = response.json()["embeddings"], vectors_of_llamacpp(encoder)
    assert len(found) == len(wanted) == len(TEXTS)
    for left, right in zip(found, wanted, strict=True):
        assert left == pytest.approx(right, abs=2e-3)


def test_an_encoder_generates_nothing(client: httpx.Client) -> None:
    body = {"model": "glow", "prompt": "warm", "stream": False}
    answer = client.post("/api/generate", json=body, timeout=60)
    assert answer.status_code == 400
    assert "glow" in answer.json()["error"]


def test_pooling_and_length_are_as_the_request_has_them(client: httpx.Client) -> None:
    def embedded(**fields: object) -> list[list[float]]:
        body = {"model": "glow", "input": TEXTS, **fields}
        response = client.post("/v1/embeddings", json=body, timeout=60)
        assert response.status_code == 200, response.text
        return [item["embedding"] for item in response.json()["data"]]

    own, mean, cls = embedded(), embedded(pooling="mean"), embedded(pooling="cls")
    assert own == mean != cls
    raw = embedded(normalize=False)
    for vector, unit in zip(raw, own, strict=True):
        length = math.hypot(*vector)
        assert length != pytest.approx(1.0, abs=1e-3)
        assert [value / length for value in vector] == pytest.approx(unit, abs=1e-5)
    assert embedded(normalize=False, dimensions=8) == [vector[:8] for vector in raw]
