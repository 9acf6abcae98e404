"""A cross-encoder from its safetensors to its scores, through /api/create and /v1/rerank."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from runner.backends.llamacpp.reranker import sigmoid
from tests.conformance.convert.reranker_cases import PAIRS, RERANKERS
from tests.conformance.test_rerankers import GOLDEN, write_checkpoint
from tests.conftest import running_daemon

EXPECTED = [sigmoid(pair["output"]) for pair in GOLDEN["bert"]["pairs"]]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Of a daemon with the model "reranker"."""
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder, "bert")
    home = tmp_path_factory.mktemp("home")
    with running_daemon(home) as daemon, daemon.client() as http:
        files = {}
        for path in folder.iterdir():
            content = path.read_bytes()
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            http.post(f"/api/blobs/{digest}", content=content).raise_for_status()
            files[path.name] = digest
        made = {"model": "reranker", "files": files, "stream": False}
        http.post("/api/create", json=made).raise_for_status()
        yield http


def test_documents_come_in_the_order_of_the_checkpoints_scores(client: httpx.Client) -> None:
    query = PAIRS[0][0]
    documents = [document for asked, document in PAIRS if asked == query]
    body = {"model": "reranker", "query": query, "documents": documents}
    answer = client.post("/v1/rerank", json=body).json()
    found = {each["index"]: each["relevance_score"] for each in answer["results"]}
    assert found == pytest.approx(dict(enumerate(EXPECTED[: len(documents)])), abs=2e-3)
    assert answer["results"][0]["relevance_score"] == max(found.values())
    tokens = sum(len(pair["ids"]) for pair in GOLDEN["bert"]["pairs"][: len(documents)])
    assert answer["usage"]["prompt_tokens"] == tokens


def test_pairs_are_scored_side_by_side(client: httpx.Client) -> None:
    left, right = zip(*PAIRS, strict=True)
    body = {"model": "reranker", "text_1": left, "text_2": right}
    data = client.post("/v1/score", json=body).json()["data"]
    assert [each["score"] for each in data] == pytest.approx(EXPECTED, abs=2e-3)


def test_it_says_what_it_is_and_refuses_the_rest(client: httpx.Client) -> None:
    shown = client.post("/api/show", json={"model": "reranker"}).json()
    assert shown["capabilities"] == ["rerank"]
    for path, body in (
        ("/v1/embeddings", {"input": "a"}),
        ("/api/embed", {"input": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ):
        answer = client.post(path, json={"model": "reranker", **body})
        assert answer.status_code == 400
        assert "/v1/rerank" in answer.text


def test_what_is_longer_than_its_context_is_refused(client: httpx.Client) -> None:
    limit = RERANKERS["bert"]["config"]["max_position_embeddings"]
    body = {"model": "reranker", "query": "fox", "documents": ["dog " * limit]}
    answer = client.post("/v1/rerank", json=body)
    assert answer.status_code == 400
    assert str(limit) in answer.text


def test_of_a_long_document_the_beginning_can_be_read(client: httpx.Client) -> None:
    limit = RERANKERS["bert"]["config"]["max_position_embeddings"]
    words = "the lazy dog " * limit
    body = {"model": "reranker", "query": "fox", "documents": [words], "truncate": True}
    answer = client.post("/v1/rerank", json=body).json()
    assert limit - 4 <= answer["usage"]["prompt_tokens"] <= limit
    asked = {"model": "reranker", "text_1": "fox " * limit, "text_2": "dog", "truncate": True}
    assert client.post("/v1/score", json=asked).status_code == 400
