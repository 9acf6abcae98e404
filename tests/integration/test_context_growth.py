"""A model starts with a small cache and gets a larger one when a conversation needs it."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.conftest import StartDaemon
from tests.unit.runner.backends.conftest import TinyModel, write_model

PROMPT = Random(5).choices(range(5, 250), k=9000)
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "ignore_eos": True, "repeat_limit": 0}


def create(client: httpx.Client, folder: Path) -> None:
    """A tiny model of 32,768 tokens of context, with weights for hearth's kernels."""
    tiny = TinyModel(width=128, blocks=1, context_length=32_768, quantized="Q8_0")
    content = write_model(folder / "tiny.gguf", tiny).read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    client.post(f"/api/blobs/{digest}", content=content).raise_for_status()
    made = {"model": "tiny", "files": {"tiny.gguf": digest}, "stream": False}
    client.post("/api/create", json=made).raise_for_status()


def complete(client: httpx.Client, prompt: list[int], tokens: int, **fields: Any) -> str:
    body = {**GREEDY, "prompt": prompt, "max_tokens": tokens, **fields}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def cache(client: httpx.Client) -> tuple[int, int]:
    """What it can hold now, and the longest context."""
    (model,) = client.get("/api/ps").json()["models"]
    return model["pool_tokens"], model["context_length"]


def answers(client: httpx.Client, **fields: Any) -> list[str]:
    """Of short prompts while a long one is computed, and of that."""
    with ThreadPoolExecutor(4) as pool:
        short = [pool.submit(complete, client, PROMPT[at : at + 40], 300) for at in range(3)]
        long = complete(client, PROMPT, 20, **fields)
        return [*(each.result() for each in short), long]


def test_the_cache_grows_under_running_answers_and_changes_none_of_them(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    with start_daemon().client() as client:
        create(client, tmp_path)
        complete(client, PROMPT[:9], 1)
        assert cache(client) == (8192, 32_768)
        grown = answers(client)
        assert cache(client) == (16_384, 32_768)
        assert 'hearth:model_loads_total{model_name="tiny"} 1.0' in client.get("/metrics").text
        client.post("/api/generate", json={"model": "tiny", "keep_alive": 0})
        complete(client, PROMPT[:9], 1, num_ctx=20_000)
        assert cache(client) == (20_000, 20_000)
        assert answers(client, num_ctx=20_000) == grown


def test_memory_limits_the_context_and_num_ctx_is_a_limit_as_before(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    with start_daemon(env={"HEARTH_MEMORY_LIMIT": "230MiB"}).client() as client:
        create(client, tmp_path)
        complete(client, PROMPT[:9], 1)
        pool, context = cache(client)
        assert pool == 8192 < context < 32_768
        for body, limit in (({}, context), ({"num_ctx": 4000}, 4000)):
            long = {**GREEDY, "prompt": (PROMPT * 4)[: limit + 1], **body}
            refused = client.post("/v1/completions", json=long)
            error = refused.json()["error"]
            assert (refused.status_code, error["context_length"]) == (400, limit)
