"""Which models are loaded, for how long, and what happens when they do not fit."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.conftest import StartDaemon

CHAT = "/v1/chat/completions"
DEADLINE_S = 120.0


def body(text: str, model: str = "echo", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


def loaded(client: httpx.Client) -> set[str]:
    names = (item["name"] for item in client.get("/api/ps").json()["models"])
    return {name.removesuffix(":latest") for name in names}


def until_loaded(client: httpx.Client, names: set[str]) -> None:
    limit = time.monotonic() + DEADLINE_S
    while loaded(client) != names:
        assert time.monotonic() < limit, loaded(client)


def test_several_models_stay_loaded_at_once(start_daemon: StartDaemon) -> None:
    with start_daemon(("echo", "other")).client() as client:
        for model in ("echo", "other"):
            client.post(CHAT, json=body("x", model))
        assert loaded(client) == {"echo", "other"}


def test_an_idle_model_goes_after_its_keep_alive(start_daemon: StartDaemon) -> None:
    with start_daemon().client() as client:
        client.post(CHAT, json=body("x", keep_alive="300ms"))
        until_loaded(client, set())


def test_idle_models_go_in_time_while_a_step_of_another_hangs(start_daemon: StartDaemon) -> None:
    with start_daemon(("echo", "idle", "unused")).client() as client:
        client.post(CHAT, json=body("x", "unused", keep_alive=-1))
        client.post(CHAT, json=body("x", "idle", keep_alive="2s"))
        with client.stream("POST", CHAT, json=body("ab<|hang|>", stream=True)) as up:
            next(up.iter_lines())
            assert loaded(client) >= {"echo", "unused"}
            until_loaded(client, {"echo", "unused"})
            client.post("/api/generate", json={"model": "unused", "keep_alive": 0})
            assert loaded(client) == {"echo"}


def test_keep_alive_0_unloads_after_the_answer(start_daemon: StartDaemon) -> None:
    with start_daemon().client() as client:
        assert client.post(CHAT, json=body("x", keep_alive=0)).status_code == 200
        until_loaded(client, set())


def test_a_negative_keep_alive_never_expires(start_daemon: StartDaemon) -> None:
    with start_daemon(env={"HEARTH_KEEP_ALIVE": "1s"}).client() as client:
        client.post(CHAT, json=body("x", keep_alive=-1))
        (entry,) = client.get("/api/ps").json()["models"]
    assert datetime.fromisoformat(entry["expires_at"]).year > datetime.now(UTC).year + 100


def test_the_least_recently_used_model_makes_room(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(("a", "b", "c"), {"HEARTH_MAX_LOADED_MODELS": "2"})
    with daemon.client() as client:
        for model in ("a", "b", "a", "c"):
            assert client.post(CHAT, json=body("x", model)).status_code == 200
        assert loaded(client) == {"a", "c"}


def test_a_load_waits_for_a_busy_model_to_become_idle(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(("a", "b"), {"HEARTH_MAX_LOADED_MODELS": "1"})
    with daemon.client() as client, daemon.client() as other:
        client.post(CHAT, json=body("x", "a"))
        with client.stream("POST", CHAT, json=body("<|slow|>" + "x" * 40, "a", stream=True)) as up:
            lines = up.iter_lines()
            next(lines)
            assert other.post(CHAT, json=body("x", "b")).status_code == 200
            assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_model_bigger_than_the_limit_is_refused_with_numbers(start_daemon: StartDaemon) -> None:
    with start_daemon(env={"HEARTH_MEMORY_LIMIT": "100MiB"}).client() as client:
        response = client.post(CHAT, json=body("x"))
        assert response.status_code == 503
        error = response.json()["error"]
        assert error["code"] == "insufficient_memory"
        assert error["needed_bytes"] > error["available_bytes"] == 100 << 20
        assert "only 100 MiB is free" in error["message"]
        assert loaded(client) == set()


def test_models_share_the_memory_limit(start_daemon: StartDaemon) -> None:
    with start_daemon(("a", "b"), {"HEARTH_MEMORY_LIMIT": "300MiB"}).client() as client:
        for model in ("a", "b"):
            assert client.post(CHAT, json=body("x", model)).status_code == 200
            assert loaded(client) == {model}


def loads(client: httpx.Client) -> int:
    lines = client.get("/metrics").text.splitlines()
    found = [line.split()[-1] for line in lines if line.startswith("hearth:model_loads_total{")]
    return sum(int(float(number)) for number in found)


def test_only_a_num_ctx_beyond_the_pool_loads_the_model_again_and_only_once(
    start_daemon: StartDaemon,
) -> None:
    with start_daemon(env={"HEARTH_NUM_PARALLEL": "4"}).client() as client:
        steps = ((100, 1), (200, 1), (400, 1), (50, 1), (99_999, 2), (4096, 2), (100, 2))
        for num_ctx, expected in steps:
            options = {"num_ctx": num_ctx}
            asked = {"model": "echo", "prompt": "x", "options": options, "stream": False}
            assert client.post("/api/generate", json=asked).status_code == 200
            assert loads(client) == expected


def test_a_request_can_fill_the_pool_of_a_shorter_context(start_daemon: StartDaemon) -> None:
    with start_daemon(env={"HEARTH_NUM_PARALLEL": "4"}).client() as client:
        client.post(CHAT, json=body("x", num_ctx=100))
        assert client.post(CHAT, json=body("x" * 200, num_ctx=100)).status_code == 400
        long = client.post(CHAT, json=body("x" * 150, num_ctx=400)).json()
        assert long["choices"][0]["message"]["content"] == "x" * 150
        assert loads(client) == 1


def test_a_requests_num_ctx_limits_it_on_a_longer_model(start_daemon: StartDaemon) -> None:
    with start_daemon().client() as client:
        client.post(CHAT, json=body("x"))
        response = client.post(CHAT, json=body("x" * 200, num_ctx=100))
        assert response.json()["error"]["context_length"] == 100


def test_a_num_ctx_beyond_the_models_own_is_answered_with_the_one_in_use(
    start_daemon: StartDaemon,
) -> None:
    def told(client: httpx.Client, path: str, model: str, **fields: Any) -> Any:
        fields = {"options": {"num_predict": 1}, "stream": False} | fields
        return client.post(path, json={"model": model, **fields}).json().get("num_ctx")

    with start_daemon().client() as client:
        created = {"model": "long", "from": "echo", "parameters": {"num_ctx": 50_000}}
        assert client.post("/api/create", json=created).is_success
        messages = [{"role": "user", "content": "x"}]
        for path, ask in (
            ("/api/generate", {}),
            ("/api/generate", {"prompt": "x"}),
            ("/api/chat", {"messages": messages}),
        ):
            assert told(client, path, "echo", **ask) is None
            assert told(client, path, "echo", **ask, options={"num_ctx": 2048}) is None
            assert client.get("/api/ps").json()["models"][0]["context_length"] == 2048
            assert told(client, path, "echo", **ask, options={"num_ctx": 99_999}) == 4096
            assert told(client, path, "long", **ask) == 4096
            assert client.get("/api/ps").json()["models"][0]["context_length"] == 4096
        stream = {"model": "long", "messages": messages}
        last = client.post("/api/chat", json=stream).text.splitlines()[-1]
        assert json.loads(last)["num_ctx"] == 4096


def test_a_prompt_too_long_is_not_told_to_take_a_context_that_the_model_has_not(
    start_daemon: StartDaemon,
) -> None:
    with start_daemon().client() as client:
        for num_ctx, remedy in (
            (1000, "a longer context (num_ctx, up to 4096)"),
            (9999, "another model, because this one supports no longer context"),
        ):
            told = client.post(CHAT, json=body("x" * 5000, num_ctx=num_ctx)).json()["error"]
            assert told["message"].endswith(f"shorten it, or use {remedy}")
            assert f"maximum context length is {min(num_ctx, 4096)} tokens" in told["message"]


def test_an_overwritten_name_answers_with_the_new_model(start_daemon: StartDaemon) -> None:
    with start_daemon(("a", "b")).client() as client:
        client.post(CHAT, json=body("x", "a"))
        before = client.get("/api/ps").json()["models"][0]["digest"]
        client.post("/api/copy", json={"source": "b", "destination": "a"})
        client.post(CHAT, json=body("x", "a"))
        assert client.get("/api/ps").json()["models"][0]["digest"] != before


def test_a_full_queue_is_refused_with_retry_after(start_daemon: StartDaemon) -> None:
    env = {"HEARTH_NUM_PARALLEL": "1", "HEARTH_MAX_QUEUE": "1"}
    daemon = start_daemon(env=env)
    endless = body("<|slow|>" + "x" * 1500, stream=True)
    with daemon.client() as client, daemon.client() as other, ThreadPoolExecutor(1) as pool:
        with daemon.client() as first, first.stream("POST", CHAT, json=endless) as up:
            lines = up.iter_lines()  # kept: without it the answer is closed
            next(lines)
            queued = pool.submit(other.post, CHAT, json=body("queued"))
            limit = time.monotonic() + DEADLINE_S
            while client.get("/api/ps").json()["models"][0]["requests"] < 2:
                assert time.monotonic() < limit
            response = client.post(CHAT, json=body("x"))
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "queue_full"
            assert int(response.headers["retry-after"]) >= 1
        assert queued.result(DEADLINE_S).status_code == 200  # the stream ahead of it was left


@pytest.mark.parametrize("model", ["a", "b"])
def test_modelfile_parameters_hold_and_a_request_overrides_them(
    start_daemon: StartDaemon, model: str
) -> None:
    with start_daemon().client() as client:
        created = {"model": model, "from": "echo", "parameters": {"num_predict": 3, "stop": "STOP"}}
        assert client.post("/api/create", json=created).is_success
        for fields, text in (({}, "abc"), ({"max_tokens": 5}, "abcde")):
            answer = client.post(CHAT, json=body("abcdefgh", model, **fields)).json()
            assert answer["choices"][0]["message"]["content"] == text
        asked = body("abSTOPcd|ef", model, max_tokens=20, stop="|")
        answer = client.post(CHAT, json=asked).json()
        assert answer["choices"][0]["message"]["content"] == "ab"
