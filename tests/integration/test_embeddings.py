"""Embedding models on llama.cpp, through a real daemon with the settings that users have."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import httpx
import pytest

from tests.conftest import StartDaemon
from tests.integration.cli_process import hearth, of_daemon
from tests.unit.runner.backends.conftest import TinyModel, write_model

MEAN, CLS, LAST = 1, 2, 3


@pytest.mark.parametrize(
    ("architecture", "pooling"), [("bert", MEAN), ("bert", CLS), ("llama", MEAN), ("llama", LAST)]
)
def test_many_texts_of_an_embedding_model_are_answered_at_once(
    start_daemon: StartDaemon, tmp_path: Path, architecture: str, pooling: int
) -> None:
    model = TinyModel(architecture=architecture, context_length=512, pooling=pooling)
    content = write_model(tmp_path / "encoder.gguf", model).read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    texts = ["warm fire", "a b c", "fire", "z"] * 25
    with start_daemon(names=()).client() as http:
        http.post(f"/api/blobs/{digest}", content=content).raise_for_status()
        body = {"model": "glow", "files": {"encoder.gguf": digest}, "stream": False}
        http.post("/api/create", json=body).raise_for_status()
        answer = http.post("/v1/embeddings", json={"model": "glow", "input": texts}, timeout=60)
        alone = http.post("/v1/embeddings", json={"model": "glow", "input": "fire"}, timeout=60)
    assert answer.status_code == 200, answer.text
    vectors = [item["embedding"] for item in answer.json()["data"]]
    assert len(vectors) == 100
    assert alone.json()["data"][0]["embedding"] == pytest.approx(vectors[2], abs=1e-3)
    assert vectors[0] != pytest.approx(vectors[2], abs=1e-3)


def test_a_chat_model_gives_the_state_of_the_last_token(client: httpx.Client) -> None:
    texts = ["What is hearth?", "What is hearth", "Spell fire."]
    body = {"model": "ember", "input": texts}
    vectors = client.post("/api/embed", json=body, timeout=60).json()["embeddings"]
    (alone,) = client.post("/api/embed", json={**body, "input": texts[2]}).json()["embeddings"]
    assert alone == pytest.approx(vectors[2], abs=1e-3)
    answer = client.post("/v1/embeddings", json={**body, "dimensions": 16}).json()
    assert answer["usage"]["prompt_tokens"] > 6
    for vector, cut in zip(vectors, answer["data"], strict=True):
        assert math.hypot(*vector) == pytest.approx(1.0, abs=1e-5)
        assert math.hypot(*cut["embedding"]) == pytest.approx(1.0, abs=1e-5)
        assert len(cut["embedding"]) == 16
    assert vectors[0] != pytest.approx(vectors[2], abs=1e-3)
    body = {"model": "ember", "query": "a", "documents": ["a", "b"]}
    assert "use an embedding model" in client.post("/v1/rerank", json=body).text


def test_run_prints_the_vector_of_an_embedding_model(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    model = TinyModel(architecture="bert", context_length=512, pooling=MEAN)
    write_model(tmp_path / "glow.gguf", model)
    daemon = start_daemon(names=())
    ran = hearth(of_daemon(daemon), "run", "./glow.gguf", "warm fire", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    with daemon.client() as http:
        body = {"model": "local/glow", "input": "warm fire"}
        (vector,) = http.post("/api/embed", json=body, timeout=60).json()["embeddings"]
    assert json.loads(ran.stdout) == pytest.approx(vector, abs=1e-3)
