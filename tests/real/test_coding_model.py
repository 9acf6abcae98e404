"""Published weights of a coding model, where they are on disk: Qwen2.5-Coder-0.5B-Instruct."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import httpx
import pytest

from tests.conftest import running_daemon
from tests.ember.skills.tool_use import call_conversation
from tests.real.models import path_of

WEIGHTS = path_of("qwen-coder-0.5b")
QUESTIONS = 20
PREFIX = '''def mean(values: list[float]) -> float:
    """The arithmetic mean."""
    total = '''
SUFFIX = "\n    return total / len(values)\n"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WEIGHTS.exists(), reason=f"{WEIGHTS.name} is not on this machine"),
]


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a daemon that has the model as coder."""
    with running_daemon(tmp_path_factory.mktemp("coder")) as daemon, daemon.client(300) as client:
        import_weights(client)
        yield client


def import_weights(client: httpx.Client) -> None:
    digest = f"sha256:{hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()}"
    with WEIGHTS.open("rb") as content:
        assert client.post(f"/api/blobs/{digest}", content=content).status_code in (200, 201)
    body = {"model": "coder", "files": {"coder.gguf": digest}, "stream": False}
    assert client.post("/api/create", json=body).status_code == 200


def test_the_middle_of_a_function_is_filled_in(coder: httpx.Client) -> None:
    shown = coder.post("/api/show", json={"model": "coder"}).json()
    assert shown["capabilities"] == ["completion", "tools", "insert"]
    body = {"model": "coder", "n_predict": 64, "temperature": 0}
    body |= {"input_prefix": PREFIX, "input_suffix": SUFFIX}
    answer = coder.post("/infill", json=body).json()
    middle = answer["content"]
    print(f"{PREFIX}>>>{middle}<<<{SUFFIX}")
    defined: dict[str, Any] = {}
    exec(PREFIX + middle + SUFFIX, defined)
    assert defined["mean"]([1.0, 2.0, 6.0]) == 3.0
    assert answer["stop_type"] == "eos"
    asked = {"model": "coder", "prompt": PREFIX, "suffix": SUFFIX, "stream": False}
    options = {"num_predict": 64, "temperature": 0}
    generated = coder.post("/api/generate", json={**asked, "options": options}).json()
    assert generated["response"] == middle


def test_calls_are_found_though_it_does_not_write_them_as_its_template_says(
    coder: httpx.Client,
) -> None:
    rng = Random("tool questions 1")
    written = found = streamed = 0
    for _ in range(QUESTIONS):
        conversation = call_conversation(rng, "eval")
        body: dict[str, Any] = {
            "model": "coder",
            "messages": [turn.message() for turn in conversation.turns[:-1]],
            "tools": [{"type": "function", "function": t["function"]} for t in conversation.tools],
            "temperature": 0,
            "max_tokens": 160,
        }
        message = coder.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
        calls = message.get("tool_calls", ())
        found += bool(calls)
        written += "<tool_call>" in json.dumps(message)
        streamed += (
            '"tool_calls"' in coder.post("/v1/chat/completions", json={**body, "stream": True}).text
        )
        for call in calls:
            json.loads(call["function"]["arguments"])
    print(f"{found} of {QUESTIONS} answered with a call, {written} with a marker")
    assert found >= QUESTIONS * 4 // 5
    assert streamed == found
