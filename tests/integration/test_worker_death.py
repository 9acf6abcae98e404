"""A worker that crashes or hangs costs its own requests an error, and nobody else anything."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil

from runner.models.watchdog import GRACE_S
from tests.conftest import RunningDaemon, StartDaemon
from tests.daemon_processes import EXECUTED

CHAT = "/v1/chat/completions"
SLOW = "<|slow|>" + "x" * 1500


def body(text: str, model: str = "echo", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


def worker_pids(daemon: RunningDaemon) -> list[int]:
    return [child.pid for child in psutil.Process(daemon.pid).children()]


def test_a_segfault_ends_its_own_stream_and_no_other(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(("echo", "other"))
    with daemon.client() as one, daemon.client() as two:
        one.post(CHAT, json=body("warm"))
        (victim,) = worker_pids(daemon)
        two.post(CHAT, json=body("warm", "other"))
        with (
            one.stream("POST", CHAT, json=body(SLOW, stream=True)) as dying,
            two.stream("POST", CHAT, json=body("<|slow|>" + "y" * 100, "other", stream=True)) as up,
        ):
            lines, others = dying.iter_lines(), up.iter_lines()
            next(lines), next(others)
            os.kill(victim, signal.SIGSEGV)
            rest = [line for line in lines if line]
            error = json.loads(rest[-1].removeprefix("data: "))["error"]
            assert error["code"] == "worker_crashed"
            assert error["signal"] == "SIGSEGV"
            finished = [line for line in others if line]
        assert finished[-1] == "data: [DONE]"
        answer = one.post(CHAT, json=body("again")).json()
        assert answer["choices"][0]["message"]["content"] == "again"
    daemon.stop()  # all its lines are read then
    assert any("SIGSEGV" in line for line in daemon.lines)


def crash_mid_stream(daemon: RunningDaemon, client: httpx.Client, path: str) -> str:
    """Kill the only worker in the middle of an answer; the stream's last line."""
    with client.stream("POST", path, json=body(SLOW, stream=True)) as response:
        lines = response.iter_lines()
        next(lines)
        os.kill(worker_pids(daemon)[0], signal.SIGSEGV)
        return [line for line in lines if line][-1]


def test_a_crash_in_a_whole_answer_is_an_error_status(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as client, daemon.client() as other, ThreadPoolExecutor(1) as pool:
        client.post(CHAT, json=body("warm"))
        answer = pool.submit(other.post, CHAT, json=body(SLOW))
        while client.get("/api/ps").json()["models"][0]["stats"]["running"] == 0:
            pass
        os.kill(worker_pids(daemon)[0], signal.SIGSEGV)
        response = answer.result()
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "worker_crashed"


def test_a_crash_in_a_native_stream_is_a_last_line_with_the_error(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        assert "unexpectedly" in json.loads(crash_mid_stream(daemon, client, "/api/chat"))["error"]


def test_three_crashes_within_a_minute_stop_the_restarts(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(("echo", "other"))
    with daemon.client() as client:
        for _ in range(3):
            crash_mid_stream(daemon, client, CHAT)
        response = client.post(CHAT, json=body("fine"))
        assert response.status_code == 500
        assert "3 times" in response.json()["error"]["message"]
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert client.post(CHAT, json=body("fine", "other")).status_code == 200


def test_a_hanging_step_is_ended_after_the_step_timeout(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={"HEARTH_STEP_TIMEOUT": "3s"})
    with daemon.client() as client:
        response = client.post(CHAT, json=body("<|hang|>"))
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "worker_timeout"
        assert client.post(CHAT, json=body("fine")).status_code == 200


def test_a_stuck_prompt_costs_its_request_only_and_the_worker_is_replaced(
    start_daemon: StartDaemon,
) -> None:
    daemon = start_daemon(env={"HEARTH_STEP_TIMEOUT": "2s"})
    with daemon.client() as client, daemon.client() as other, ThreadPoolExecutor(1) as pool:
        client.post(CHAT, json=body("warm"))
        first = worker_pids(daemon)
        answer = pool.submit(client.post, CHAT, json=body("{stuck}"))
        while not answer.done():
            assert other.post(CHAT, json=body("fine")).status_code == 200
        assert answer.result().status_code == 504
        assert answer.result().json()["error"]["code"] == "worker_timeout"
        while worker_pids(daemon) == first:
            other.post(CHAT, json=body("fine"))  # one may be refused: its worker is leaving
        assert other.post(CHAT, json=body("fine")).status_code == 200


def test_idle_models_leave_while_another_hangs_and_it_is_ended_in_time(
    start_daemon: StartDaemon,
) -> None:
    limit_s = 6.0
    daemon = start_daemon(("echo", "other"), env={"HEARTH_STEP_TIMEOUT": f"{limit_s}s"})
    with daemon.client() as one, daemon.client() as two, ThreadPoolExecutor(1) as pool:
        one.post(CHAT, json=body("warm"))
        two.post("/api/generate", json={"model": "other", "keep_alive": "1s"})
        began_s = time.monotonic()
        answer = pool.submit(one.post, CHAT, json=body("<|hang|>"))
        while "other:latest" in {item["name"] for item in two.get("/api/ps").json()["models"]}:
            assert not answer.done()
        assert not answer.done()
        assert answer.result().json()["error"]["code"] == "worker_timeout"
        assert limit_s <= time.monotonic() - began_s < limit_s + 10 * GRACE_S


def test_a_stopped_process_is_ended_after_the_step_timeout(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={"HEARTH_STEP_TIMEOUT": "3s"})
    with daemon.client() as client:
        client.post(CHAT, json=body("warm"))
        os.kill(worker_pids(daemon)[0], signal.SIGSTOP)
        response = client.post(CHAT, json=body("frozen"))
        assert response.json()["error"]["code"] == "worker_timeout"


def test_workers_die_with_a_daemon_that_is_killed(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        client.post(CHAT, json=body("warm"))
    (worker,) = (psutil.Process(pid) for pid in worker_pids(daemon))
    daemon.process.kill()
    daemon.wait()
    psutil.wait_procs([worker], timeout=60)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


def test_a_worker_gets_none_of_the_daemons_environment(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={"HF_TOKEN": "secret-canary", EXECUTED: "1"})
    with daemon.client() as client:
        client.post(CHAT, json=body("warm"))
    (worker,) = (psutil.Process(pid) for pid in worker_pids(daemon))
    assert set(worker.environ()) <= {"CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LC_CTYPE"}
    assert worker.cwd() == "/"


def test_an_unloaded_models_process_is_gone(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        client.post(CHAT, json=body("warm"))
        (worker,) = (psutil.Process(pid) for pid in worker_pids(daemon))
        client.post("/api/generate", json={"model": "echo", "keep_alive": 0})
        assert psutil.wait_procs([worker], timeout=60)[1] == []
        assert worker_pids(daemon) == []


def test_requests_in_flight_survive_the_removal_of_their_model(start_daemon: StartDaemon) -> None:
    with start_daemon().client() as client:
        client.post(CHAT, json=body("warm"))
        with client.stream("POST", CHAT, json=body("<|slow|>" + "x" * 60, stream=True)) as up:
            lines = up.iter_lines()
            next(lines)
            assert httpx.request(
                "DELETE", f"{client.base_url}/api/delete", json={"model": "echo"}, trust_env=False
            ).is_success
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert client.post(CHAT, json=body("gone")).status_code == 404
