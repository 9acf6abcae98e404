"""What Ollama's clients rely on beyond its documents, through a real daemon and worker."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.unit.runner.backends.conftest import TinyModel, write_model

ASK = {"model": "echo", "prompt": "hello", "stream": False}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def install(client: httpx.Client, name: str, content: bytes, **more: Any) -> httpx.Response:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert client.post(f"/api/blobs/{digest}", content=content).status_code in (200, 201)
    body = {"model": name, "files": {"m.gguf": digest}, "stream": False, **more}
    return client.post("/api/create", json=body)


def said(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_version_is_one_that_clients_know_and_hearths_own_is_beside_it(
    client: httpx.Client,
) -> None:
    about = client.get("/api/version").json()
    assert tuple(map(int, about["version"].split("."))) >= (0, 14, 0)
    assert about["hearth"]


def test_there_is_no_account_and_no_cloud(client: httpx.Client) -> None:
    assert client.get("/api/status").json()["cloud"]["disabled"] is True
    for path in ("/api/me", "/api/signout"):
        answer = client.post(path)
        assert (answer.status_code, "signed in" in answer.json()["error"]) == (401, True)


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat", "/api/show", "/api/embed"])
def test_a_model_that_is_missing_is_told_in_words_that_clients_look_for(
    client: httpx.Client, path: str
) -> None:
    answer = client.post(path, json={"model": "nowhere"})
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("model 'nowhere' not found, try pulling it first")


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat", "/api/show", "/api/pull"])
def test_no_body_is_told_whatever_its_type(client: httpx.Client, path: str) -> None:
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/json"}):
        answer = client.post(path, headers=headers)
        assert answer.status_code == 400
        assert "missing request body" in answer.json()["error"]


def test_a_model_that_stays_leaves_in_centuries(client: httpx.Client) -> None:
    said(client, "/api/generate", model="other", keep_alive=-1)
    (entry,) = [
        one for one in client.get("/api/ps").json()["models"] if one["name"] == "other:latest"
    ]
    assert datetime.fromisoformat(entry["expires_at"]).year > datetime.now(UTC).year + 100
    assert entry["size_vram"] == 0
    said(client, "/api/generate", model="other", keep_alive=0)


def test_a_warm_model_has_a_load_duration(client: httpx.Client) -> None:
    for path, more in (
        ("/api/generate", {"prompt": "a"}),
        ("/api/chat", {"messages": [{"content": "a"}]}),
        ("/api/embed", {"input": "a"}),
    ):
        said(client, path, model="echo", stream=False, **more)
        answer = said(client, path, model="echo", stream=False, **more)
        assert 0 < answer["load_duration"] <= answer["total_duration"]


def test_a_message_without_a_role_is_the_users(client: httpx.Client) -> None:
    for message in ({"content": "hello"}, {"role": "", "content": "hello"}):
        answer = said(client, "/api/chat", model="echo", messages=[message], stream=False)
        assert answer["message"]["content"] == "hello"


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_are_those_of_the_text(client: httpx.Client, stream: bool) -> None:
    def items(**more: Any) -> list[dict[str, Any]]:
        body = {**ASK, "prompt": "abc", "raw": True, "logprobs": True, "stream": stream, **more}
        lines = client.post("/api/generate", json=body).text.splitlines()
        return [item for line in lines for item in json.loads(line).get("logprobs", ())]

    plain = items()
    assert "".join(item["token"] for item in plain) == "abc"
    assert all(item["token"] and "top_logprobs" not in item for item in plain)
    assert all(len(item["top_logprobs"]) == 2 for item in items(top_logprobs=2))


def test_a_schema_closes_objects_at_the_properties_that_it_lists(client: httpx.Client) -> None:
    def answer(schema: dict[str, Any]) -> str:
        """The model repeats its prompt as far as the grammar lets it."""
        prompt = '{"a": 1, "b": 2}'
        found = said(client, "/api/generate", **{**ASK, "prompt": prompt, "format": schema})
        return str(found["response"])

    assert json.loads(answer(SCHEMA)) == {"a": 1}
    assert json.loads(answer({**SCHEMA, "additionalProperties": True})) == {"a": 1, "b": 2}


def test_the_list_says_what_models_can_do_and_how_long_they_are(client: httpx.Client) -> None:
    models = {model["name"]: model for model in client.get("/api/tags").json()["models"]}
    assert {"completion", "tools"} <= set(models["tools:latest"]["capabilities"])
    assert models["echo:latest"]["details"]["context_length"] == 4096
    assert models["ember:latest"]["details"]["embedding_length"] > 0


def test_a_shown_model_has_its_tensors(client: httpx.Client) -> None:
    tensors = said(client, "/api/show", model="ember")["tensors"]
    (embedding,) = [one for one in tensors if one["name"] == "token_embd.weight"]
    assert embedding["type"]
    assert len(embedding["shape"]) == 2


def test_create_takes_the_old_name_of_quantize(client: httpx.Client) -> None:
    answer = install(client, "small", echo_gguf(salt="q"), quantization="Q9_9")
    assert (answer.status_code, "Q9_9" in answer.json()["error"]) == (400, True)


@pytest.fixture(scope="module")
def glow(shared_daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An embedding model with tokens of its own at both ends of a text."""
    tiny = TinyModel(architecture="bert", context_length=512, pooling=1)
    content = write_model(tmp_path_factory.mktemp("glow") / "m.gguf", tiny).read_bytes()
    with shared_daemon.client() as client:
        install(client, "glow", content).raise_for_status()
        yield "glow"
        client.request("DELETE", "/api/delete", json={"model": "glow"})


def test_an_embedded_text_is_cut_at_num_ctx_and_keeps_the_tokens_around_it(
    client: httpx.Client, glow: str
) -> None:
    def embed(text: str, **more: Any) -> Any:
        return client.post("/api/embed", json={"model": glow, "input": text, **more})

    short, long = "warm", "warm fire warm fire warm fire"
    whole = embed(short).json()
    options = {"num_ctx": whole["prompt_eval_count"]}
    for more in ({}, {"truncate": True}):
        cut = embed(long, options=options, **more).json()
        assert cut["embeddings"][0] == pytest.approx(whole["embeddings"][0], abs=1e-6)
        assert cut["prompt_eval_count"] == options["num_ctx"]
    refused = embed(long, options=options, truncate=False)
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("the input length exceeds the context length")
    assert embed(short, options=options, truncate=False).status_code == 200
    nothing = embed(long, options={"num_ctx": 1})
    assert nothing.status_code == 400
    assert "input after truncation exceeds maximum context length" in nothing.json()["error"]
    assert embed(long).json()["prompt_eval_count"] > options["num_ctx"]  # of this request only


def test_no_input_gives_no_vectors_and_more_dimensions_than_there_are_cut_nothing(
    client: httpx.Client, glow: str
) -> None:
    for given in ("", []):
        assert said(client, "/api/embed", model=glow, input=given)["embeddings"] == []
    (whole,) = said(client, "/api/embed", model=glow, input="warm")["embeddings"]
    for dimensions in (0, len(whole), len(whole) + 1):
        answer = said(client, "/api/embed", model=glow, input="warm", dimensions=dimensions)
        assert answer["embeddings"] == [whole]
    (cut,) = said(client, "/api/embed", model=glow, input="warm", dimensions=2)["embeddings"]
    assert math.hypot(*cut) == pytest.approx(1.0, abs=1e-5)


def test_a_daemon_is_reached_by_the_names_and_from_the_origins_of_its_settings(
    start_daemon: StartDaemon,
) -> None:
    env = {"HEARTH_HOSTS": "llm", "OLLAMA_ORIGINS": "https://*.app.example"}

    def status(client: httpx.Client, **headers: str) -> int:
        return client.post("/api/generate", json=ASK, headers=headers).status_code

    with start_daemon(env=env).client() as client:
        assert [status(client, host=host) for host in ("llm:4327", "llm2:4327")] == [200, 403]
        origins = ("https://pr-1.app.example", "https://app.example", "http://localhost:3000")
        assert [status(client, origin=origin) for origin in origins] == [200, 403, 200]
        assert status(client, host="llm:4327", origin="http://llm:4327") == 200
        assert status(client, host="x.local:4327", origin="http://x.local:4327") == 403
