"""Models of the same weights that differ only in what each request brings share one worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.daemon_processes import EXECUTED

DEADLINE_S = 120.0
PERSONAS: dict[str, dict[str, Any]] = {
    "pirate": {"system": "Arr.", "template": "{{ .System }} <pirate> {{ .Prompt }}"},
    "poet": {"system": "Rhyme.", "template": "{{ .Prompt }} <poet> {{ .System }}"},
}
PROMPT = "what was asked before, long enough to be worth keeping in the cache"


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> Iterator[RunningDaemon]:
    """A daemon with the model echo and two made from it."""
    running = start_daemon()
    with running.client() as client:
        for name, fields in PERSONAS.items():
            body = {"model": name, "from": "echo", "stream": False, **fields}
            assert client.post("/api/create", json=body).is_success
        yield running


@pytest.fixture
def client(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    with daemon.client() as http:
        yield http


def chat(client: httpx.Client, model: str, text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    body = {"model": model, "messages": messages, "stream": False, **fields}
    answer: dict[str, Any] = client.post("/api/chat", json=body).raise_for_status().json()
    return answer


def loaded(client: httpx.Client) -> dict[str, dict[str, Any]]:
    models = client.get("/api/ps").json()["models"]
    return {item["name"].removesuffix(":latest"): item for item in models}


def workers(daemon: RunningDaemon) -> list[psutil.Process]:
    return psutil.Process(daemon.pid).children()


def until_both_run(client: httpx.Client) -> None:
    """Until the worker's batch has an answer of each of PERSONAS."""
    limit = time.monotonic() + DEADLINE_S
    while [(item["stats"] or {}).get("running") for item in loaded(client).values()] != [2, 2]:
        assert time.monotonic() < limit


def test_one_worker_answers_for_all_at_once_each_with_its_own_system_and_template(
    daemon: RunningDaemon, client: httpx.Client
) -> None:
    slow = "<|slow|>" + "x" * 200
    with ThreadPoolExecutor(2) as pool, daemon.client() as other:
        answers = [
            pool.submit(chat, http, model, slow)
            for http, model in ((client, "pirate"), (other, "poet"))
        ]
        with daemon.client() as third:
            until_both_run(third)
        texts = [answer.result(DEADLINE_S)["message"]["content"] for answer in answers]
    assert texts == [f"Arr. <pirate> {'x' * 200}", f"{'x' * 200} <poet> Rhyme."]
    assert chat(client, "echo", "hi")["message"]["content"] == "hi"
    assert len(workers(daemon)) == 1


def test_the_list_counts_the_memory_once_and_says_who_shares_it(client: httpx.Client) -> None:
    for model in ("echo", "pirate", "poet"):
        chat(client, model, "x")
    found = loaded(client)
    assert found["echo"]["size"] > 0
    assert "shares_memory_of" not in found["echo"]
    for name in PERSONAS:
        assert found[name]["size"] == found[name]["size_vram"] == 0
        assert found[name]["shares_memory_of"] == "echo:latest"
    metrics = client.get("/metrics").text
    assert metrics.count("\nhearth:worker_memory_bytes{") == 1
    assert "\nhearth:models_loaded 3.0" in metrics
    for name in (*PERSONAS, "echo"):
        line = f'vllm:request_success_total{{finished_reason="stop",model_name="{name}"}} 1.0'
        assert line in metrics


def test_what_one_was_asked_is_not_in_the_prefix_cache_of_another(client: httpx.Client) -> None:
    def cached(model: str) -> int:
        body = {"model": model, "prompt": PROMPT, "max_tokens": 1}
        usage = client.post("/v1/completions", json=body).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert [cached(model) for model in ("pirate", "pirate", "poet", "poet")] == [
        0, len(PROMPT), 0, len(PROMPT)
    ]  # fmt: skip


def test_stopping_one_leaves_the_answer_of_another(
    daemon: RunningDaemon, client: httpx.Client
) -> None:
    chat(client, "poet", "x")
    text = "<|slow|>" + "x" * 60
    body = {"model": "pirate", "messages": [{"role": "user", "content": text}]}
    with daemon.client() as other, other.stream("POST", "/api/chat", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        (worker,) = workers(daemon)
        client.post("/api/generate", json={"model": "poet", "keep_alive": 0})
        assert set(loaded(client)) == {"pirate"}
        assert '"done_reason":"stop"' in [line for line in lines if line][-1]
    client.post("/api/generate", json={"model": "pirate", "keep_alive": 0})
    assert loaded(client) == {}
    assert not worker.is_running()


def test_the_memory_is_counted_where_the_first_model_is_only_finishing(
    daemon: RunningDaemon, client: httpx.Client
) -> None:
    text = "<|slow|>" + "x" * 200
    body = {"model": "pirate", "messages": [{"role": "user", "content": text}]}
    with daemon.client() as other, other.stream("POST", "/api/chat", json=body) as response:
        next(response.iter_lines())
        chat(client, "poet", "x")
        assert loaded(client)["poet"]["shares_memory_of"] == "pirate:latest"
        client.post("/api/generate", json={"model": "pirate", "keep_alive": 0})
        (poet,) = loaded(client).values()
        assert poet["size"] > 0
        assert "shares_memory_of" not in poet


def test_each_expires_by_its_own_keep_alive_and_the_last_one_ends_the_worker(
    daemon: RunningDaemon, client: httpx.Client
) -> None:
    chat(client, "pirate", "x", keep_alive=-1)
    chat(client, "poet", "x", keep_alive="200ms")
    limit = time.monotonic() + DEADLINE_S
    while set(loaded(client)) != {"pirate"}:
        assert time.monotonic() < limit
    (worker,) = workers(daemon)
    chat(client, "pirate", "x", keep_alive=0)
    worker.wait(DEADLINE_S)
    assert loaded(client) == {}


def test_a_crash_of_the_worker_is_told_to_the_requests_of_all(
    daemon: RunningDaemon, client: httpx.Client
) -> None:
    messages = [{"role": "user", "content": "<|slow|>" + "x" * 500}]

    def ask(model: str) -> httpx.Response:
        body = {"model": model, "messages": messages}
        with daemon.client() as own:
            return own.post("/v1/chat/completions", json=body)

    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(ask, name) for name in PERSONAS]
        until_both_run(client)
        (worker,) = workers(daemon)
        os.kill(worker.pid, signal.SIGSEGV)
        for answer in answers:
            error = answer.result(DEADLINE_S).json()["error"]
            assert error["code"] == "worker_crashed"
            assert all(name in error["message"] for name in PERSONAS)
    assert chat(client, "poet", "x")["message"]["content"] == "x <poet> Rhyme."


def test_other_ways_to_load_have_workers_of_their_own(
    daemon: RunningDaemon, client: httpx.Client
) -> None:
    body = {"model": "threads", "from": "echo", "parameters": {"num_thread": 1}}
    assert client.post("/api/create", json=body).is_success
    for model in ("echo", "threads"):
        chat(client, model, "x")
    assert len(workers(daemon)) == 2


def test_a_second_model_of_the_same_weights_takes_no_second_memory(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(names=(), env={EXECUTED: "1"})
    options = {"temperature": 0, "num_predict": 8}
    with daemon.client() as client:
        body = {"model": "persona", "from": "ember", "system": "You are a cat."}
        assert client.post("/api/create", json=body).is_success
        alone = chat(client, "ember", "Who are you?", options=options)["message"]["content"]
        (worker,) = workers(daemon)
        before = worker.memory_info().rss
        other = chat(client, "persona", "Who are you?", options=options)["message"]["content"]
        again = chat(client, "ember", "Who are you?", options=options)["message"]["content"]
    assert [child.pid for child in workers(daemon)] == [worker.pid]
    assert worker.memory_info().rss < 1.2 * before
    assert alone == again != other
