"""Installed models over HTTP: list, show, create, copy, delete, upload."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import StartDaemon
from tests.echo_models import echo_gguf

CHAT = "/v1/chat/completions"


@pytest.fixture
def http(start_daemon: StartDaemon) -> Iterator[httpx.Client]:
    with start_daemon().client() as client:
        yield client


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def create(client: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    lines = client.post("/api/create", json=fields).text.splitlines()
    return [json.loads(line) for line in lines]


def test_an_uploaded_file_becomes_a_model_that_answers(http: httpx.Client) -> None:
    content = echo_gguf(salt="uploaded")
    digest = digest_of(content)
    assert http.head(f"/api/blobs/{digest}").status_code == 404
    assert http.post(f"/api/blobs/{digest}", content=content).status_code == 201
    assert http.post(f"/api/blobs/{digest}", content=content).status_code == 200
    assert http.head(f"/api/blobs/{digest}").status_code == 200
    done = create(http, model="mine", files={"m.gguf": digest}, system="Be kind.")
    assert done[-1] == {"status": "success"}
    asked = {"model": "mine", "messages": [{"role": "user", "content": "hi"}]}
    assert http.post(CHAT, json=asked).json()["choices"][0]["message"]["content"] == "hi"


def test_a_blob_with_another_digest_is_refused_and_not_kept(http: httpx.Client) -> None:
    digest = digest_of(b"expected")
    response = http.post(f"/api/blobs/{digest}", content=b"actual")
    assert response.status_code == 400
    assert "digest mismatch" in response.json()["error"]
    assert http.head(f"/api/blobs/{digest}").status_code == 404


@pytest.mark.parametrize("digest", ["sha256:123", "sha256:" + "g" * 64, "md5:abc", "..%2f..%2fx"])
def test_a_malformed_digest_is_refused(http: httpx.Client, digest: str) -> None:
    assert http.post(f"/api/blobs/{digest}", content=b"x").status_code in (400, 404)


HOSTILE = {
    "empty": b"",
    "no GGUF": b"PK\x03\x04 not a model",
    "four bytes": b"GGUF",
    "huge counts": b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16,
    "truncated": echo_gguf()[:40],
    "version 99": b"GGUF" + (99).to_bytes(4, "little") + bytes(16),
}


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_a_file_that_is_no_model_is_refused_by_create(http: httpx.Client, kind: str) -> None:
    content = HOSTILE[kind]
    digest = digest_of(content)
    assert http.post(f"/api/blobs/{digest}", content=content).status_code == 201
    response = http.post("/api/create", json={"model": "bad", "files": {"m.gguf": digest}})
    last = json.loads(response.text.splitlines()[-1])
    assert "GGUF" in last["error"]
    names = [item["name"] for item in http.get("/api/tags").json()["models"]]
    assert not any(name.startswith("bad") for name in names)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "from"),
        ({"from": "echo", "files": {"a": "sha256:" + "0" * 64}}, "not in the store"),
        ({"from": "nope"}, "nope"),
        ({"files": {"a": "sha256:" + "0" * 64}}, "not in the store"),
        ({"from": "echo", "parameters": {"temperature": -1}}, "temperature"),
        ({"from": "echo", "parameters": {"temperatur": 1}}, "temperature"),
        ({"from": "echo", "template": "{% if %}"}, "template"),
        ({"from": "echo", "messages": [{"role": "king", "content": "x"}]}, "king"),
        ({"from": "echo", "quantize": "q4_0"}, "quantize"),
    ],
)
def test_a_wrong_description_is_refused_and_leaves_nothing(
    http: httpx.Client, fields: dict[str, Any], word: str
) -> None:
    before = http.get("/api/tags").json()
    response = http.post("/api/create", json={"model": "new", "stream": False, **fields})
    assert response.status_code in (400, 404)
    assert word in response.json()["error"]
    assert http.get("/api/tags").json() == before


def test_copy_show_and_delete(http: httpx.Client) -> None:
    create(http, model="mine", **{"from": "echo"}, parameters={"num_ctx": 512}, system="Be kind.")
    assert http.post("/api/copy", json={"source": "mine", "destination": "me/copy:v1"}).is_success
    shown = http.post("/api/show", json={"model": "me/copy:v1"}).json()
    assert shown["system"] == "Be kind."
    assert "num_ctx" in shown["parameters"]
    assert "FROM me/copy:v1" in shown["modelfile"]
    assert shown["capabilities"] == ["completion", "embedding"]
    assert http.get("/v1/models/me/copy:v1").json()["id"] == "me/copy:v1"
    assert http.request("DELETE", "/api/delete", json={"model": "me/copy:v1"}).is_success
    for path in ("/api/show", "/api/delete"):
        method = "DELETE" if path == "/api/delete" else "POST"
        assert http.request(method, path, json={"model": "me/copy:v1"}).status_code == 404


def test_listings_hold_every_model_newest_first(http: httpx.Client) -> None:
    create(http, model="newest", **{"from": "echo"})
    tags = [item["name"] for item in http.get("/api/tags").json()["models"]]
    assert tags[0] == "newest:latest"
    assert set(tags) >= {"newest:latest", "echo:latest"}
    short = [item["id"] for item in http.get("/v1/models").json()["data"]]
    assert short == [tag.removesuffix(":latest") for tag in tags]


def test_the_system_prompt_of_a_model_counts_unless_the_request_has_one(
    http: httpx.Client,
) -> None:
    create(http, model="mine", **{"from": "echo"}, system="x" * 300)
    counts = []
    for messages in (
        [{"role": "user", "content": "hi"}],
        [{"role": "system", "content": "y"}, {"role": "user", "content": "hi"}],
    ):
        answer = http.post(CHAT, json={"model": "mine", "messages": messages}).json()
        counts.append(answer["usage"]["prompt_tokens"])
    assert counts[0] > 300 > counts[1]


def test_version_names_hearth(http: httpx.Client) -> None:
    version = http.get("/api/version").json()
    assert version["name"] == "hearth"
    assert version["version"]
    assert http.head("/").status_code == 200


def test_embed_gives_a_unit_vector_for_each_input(http: httpx.Client) -> None:
    answer = http.post("/api/embed", json={"model": "echo", "input": ["a", "b"]}).json()
    assert len(answer["embeddings"]) == 2
    for vector in answer["embeddings"]:
        assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-5)
    short = http.post("/api/embed", json={"model": "echo", "input": "a", "dimensions": 4}).json()
    assert len(short["embeddings"][0]) == 4
    assert sum(value * value for value in short["embeddings"][0]) == pytest.approx(1, abs=1e-5)
