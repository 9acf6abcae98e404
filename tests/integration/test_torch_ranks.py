"""A model in several processes, through a real daemon: the same answers; they start and end
together; what cannot be split is refused before any is started."""

from __future__ import annotations

import json
import os
import signal
import time
from importlib.util import find_spec
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.daemon_processes import PYTORCH

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

LIMIT_S = 2.0  # from the loss of a process to the error of its requests
GONE_S = 10.0
SPLITS: dict[str, dict[str, Any]] = {
    "whole": {},
    "split": {"tensor_parallel": 2},
    "staged": {"pipeline_parallel": 2},
}


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    started = start_daemon(preloaded=PYTORCH)
    with started.client() as client:
        for name, parameters in SPLITS.items():
            create(client, name, parameters)
    return started


def create(client: httpx.Client, name: str, parameters: dict[str, Any], **fields: Any) -> None:
    own = {"backend": "torch", "num_ctx": 512, "num_parallel": 4, "num_thread": 1, **parameters}
    body = {"model": name, "from": "ember", "parameters": own, "stream": False, **fields}
    created = client.post("/api/create", json=body)
    assert created.status_code == 200, created.text


def completion(model: str, **fields: Any) -> dict[str, Any]:
    prompt = "Once upon a time there was a fire in the hearth"
    return {"model": model, "prompt": prompt, "max_tokens": 32, "temperature": 0, **fields}


def processes(daemon: RunningDaemon) -> list[psutil.Process]:
    """The only worker, and the model's other processes."""
    (worker,) = psutil.Process(daemon.pid).children()
    return [worker, *worker.children()]


@pytest.mark.slow
def test_greedy_answers_are_those_of_one_process(daemon: RunningDaemon) -> None:
    with daemon.client() as client:
        texts = []
        for name in SPLITS:
            response = client.post("/v1/completions", json=completion(name, logprobs=2))
            assert response.status_code == 200, response.text
            choice = response.json()["choices"][0]
            texts.append(choice["text"])
            assert choice["logprobs"]["token_logprobs"][0] < 0
            client.post("/api/generate", json={"model": name, "keep_alive": 0})
        assert texts[0]
        assert texts[1:] == texts[:1] * 2


@pytest.mark.parametrize(
    "what", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_a_lost_process_ends_the_requests_and_all_start_again(
    what: signal.Signals, daemon: RunningDaemon
) -> None:
    asked = completion("split", max_tokens=400, ignore_eos=True, stream=True)
    with daemon.client() as client:
        client.post("/v1/completions", json=completion("split", max_tokens=1))
        worker, other = processes(daemon)
        with client.stream("POST", "/v1/completions", json=asked) as response:
            lines = response.iter_lines()
            next(lines)
            began_s = time.monotonic()
            os.kill(other.pid, what)
            last = [line for line in lines if line][-1]
        assert time.monotonic() - began_s <= LIMIT_S
        error = json.loads(last.removeprefix("data: "))["error"]
        assert error["code"] == "worker_crashed"
        assert f"process 1 of 2 of the model (pid {other.pid})" in error["message"]
        _, alive = psutil.wait_procs([worker, other], GONE_S)
        assert not alive
        again = client.post("/v1/completions", json=completion("split"))
        assert again.status_code == 200, again.text
        assert len(processes(daemon)) == 2


@pytest.mark.slow
def test_the_other_processes_end_with_the_first_and_with_the_model(daemon: RunningDaemon) -> None:
    with daemon.client() as client:
        for end in ("kill", "unload"):
            client.post("/v1/completions", json=completion("staged", max_tokens=1))
            found = processes(daemon)
            assert len(found) == 2
            if end == "kill":
                found[1].suspend()  # it cannot notice by itself
                found[0].kill()
            else:
                client.post("/api/generate", json={"model": "staged", "keep_alive": 0})
            _, alive = psutil.wait_procs(found, GONE_S)
            assert not alive


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tensor_parallel": 3}, "tensor_parallel=3 does not divide the model's 4 attention heads"),
        ({"pipeline_parallel": 9}, "pipeline_parallel=9 is more than the model's 6 layers"),
        ({"tensor_parallel": 64, "pipeline_parallel": 2}, "128 processes, at most 64"),
        ({"tensor_parallel": 2, "devices": [0, 1]}, "PyTorch can use 0 GPUs here"),
        ({"tensor_parallel": 2, "devices": [0]}, "1 GPUs for 2 processes"),
        ({"tensor_parallel": 2, "backend": "llamacpp"}, "is for the backend torch"),
    ],
)
def test_what_cannot_be_split_is_refused_before_a_process_starts(
    parameters: dict[str, Any], message: str, start_daemon: StartDaemon
) -> None:
    daemon = start_daemon()
    with daemon.client() as client:
        create(client, "wrong", parameters)
        response = client.post("/v1/completions", json=completion("wrong"))
        assert response.status_code == 400
        assert message in response.json()["error"]["message"]
        assert not psutil.Process(daemon.pid).children()
