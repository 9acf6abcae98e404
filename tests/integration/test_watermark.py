"""Watermarked answers of ember, on both backends, and their detection through the daemon."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon, running_daemon
from tests.integration.cli_process import hearth, of_daemon

# ember has little to choose from: it is heated, and its green tokens are preferred strongly
STRONG = {"temperature": 1.3, "top_k": 0, "top_p": 1.0, "watermark_delta": 8.0}
PLAIN = (Path(__file__).parents[2] / "docs/quickstart.md").read_text("utf-8")[:3000]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running_daemon(tmp_path_factory.mktemp("watermark")) as started:
        yield started


@pytest.fixture(scope="module")
def http(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture(scope="module", params=["llamacpp", "torch"])
def model(request: pytest.FixtureRequest, http: httpx.Client) -> str:
    """ember on each backend."""
    if request.param == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: make torch")
    name = f"ember-{request.param}"
    body = {"model": name, "from": "ember", "parameters": {"backend": request.param}}
    assert http.post("/api/create", json={**body, "stream": False}).status_code == 200
    return name


def answer(http: httpx.Client, model: str, **more: Any) -> dict[str, Any]:
    """A completion of 200 tokens, with their ids."""
    body = {"model": model, "prompt": "Tell a story.", "max_tokens": 200, "ignore_eos": True,
            "seed": 1, "return_token_ids": True, **STRONG, **more}  # fmt: skip
    reply = http.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()["choices"][0]
    return found


def detected(http: httpx.Client, **body: Any) -> dict[str, Any]:
    reply = http.post("/v1/watermark/detect", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_a_marked_answer_is_found_and_a_plain_one_is_not(http: httpx.Client, model: str) -> None:
    marked = answer(http, model, watermark=True)
    plain = answer(http, model)
    assert plain["text"] != marked["text"]
    found = detected(http, model=model, tokens=marked["token_ids"])
    assert found["tokens"] == 200
    assert found["z_score"] > 4
    assert found["p_value"] < 1e-4
    assert found["is_watermarked"] is True
    assert detected(http, model=model, text=marked["text"])["is_watermarked"] is True
    assert detected(http, model=model, tokens=plain["token_ids"])["is_watermarked"] is False
    assert detected(http, model=model, text=PLAIN)["is_watermarked"] is False


def test_the_same_seed_gives_the_same_marked_answer(http: httpx.Client, model: str) -> None:
    first, second = (answer(http, model, watermark=True) for _ in range(2))
    assert first == second
    assert answer(http, model, watermark=True, seed=2) != first


def test_a_grammar_holds_in_a_marked_answer(http: httpx.Client, model: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
              "additionalProperties": False}  # fmt: skip
    body = {"ignore_eos": False, "watermark": True,
            "response_format": {"type": "json_schema",
                                "json_schema": {"name": "n", "schema": schema}}}  # fmt: skip
    message = [{"role": "user", "content": "a number"}]
    reply = http.post(
        "/v1/chat/completions", json={"model": model, "messages": message, **STRONG, **body}
    )
    assert isinstance(json.loads(reply.json()["choices"][0]["message"]["content"])["n"], int)


def test_ollamas_options_and_the_modelfile_mark_too(http: httpx.Client) -> None:
    options = {**STRONG, "seed": 1, "num_predict": 200, "watermark": True}
    body = {"model": "ember", "prompt": "Tell a story.", "stream": False}
    reply = http.post("/api/generate", json={**body, "options": options}).json()["response"]
    parameters = {"watermark": True, "watermark_gamma": 0.5}
    made = {"model": "marked", "from": "ember", "parameters": parameters, "stream": False}
    assert http.post("/api/create", json=made).status_code == 200
    text = answer(http, "marked")["text"]
    assert detected(http, model="ember", text=reply)["z_score"] > 2
    found = detected(http, model="marked", text=text)
    assert (found["watermark_gamma"], found["is_watermarked"]) == (0.5, True)


def test_the_command_tells_what_a_file_carries(
    daemon: RunningDaemon, http: httpx.Client, tmp_path: Path
) -> None:
    (tmp_path / "marked.txt").write_text(answer(http, "ember", watermark=True)["text"])
    (tmp_path / "plain.txt").write_text(PLAIN)
    env = of_daemon(daemon)
    marked = hearth(env, "watermark", "detect", str(tmp_path / "marked.txt"), "--model", "ember")
    assert marked.stdout.startswith("a watermark: "), marked.stderr
    plain = hearth(env, "watermark", "detect", "-", "--model", "ember", stdin=PLAIN.encode())
    assert plain.stdout.startswith("no watermark: ")
    as_json = hearth(
        env, "watermark", "detect", str(tmp_path / "plain.txt"), "--model", "ember", "--json"
    )
    assert json.loads(as_json.stdout)["is_watermarked"] is False
    missing = hearth(env, "watermark", "detect", str(tmp_path / "no.txt"), "--model", "ember")
    assert missing.returncode == 2
    assert "no.txt cannot be read" in missing.stderr


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "exactly one of text and tokens"),
        ({"text": "a", "tokens": [1]}, "exactly one of text and tokens"),
        ({"text": "a", "watermark_gamma": 1.0}, "watermark_gamma"),
        ({"text": "a" * ((1 << 20) + 1)}, "1048577 bytes"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(
    http: httpx.Client, body: dict[str, Any], said: str
) -> None:
    reply = http.post("/v1/watermark/detect", json={"model": "ember", **body})
    assert reply.status_code == 400
    assert said in reply.text


def test_a_delta_that_is_no_number_is_refused(http: httpx.Client) -> None:
    body = {"model": "ember", "prompt": "x", "watermark": True, "watermark_delta": "much"}
    reply = http.post("/v1/completions", json=body)
    assert reply.status_code == 400
    assert "watermark_delta" in reply.text
