"""The closed loop, against a real socket."""

from __future__ import annotations

import socket
import threading

import pytest

from cli.bench.load import calibrate, run
from cli.bench.timed_response import InvalidResponse
from cli.bench.workload import TokenScale, Workload
from runner.client import Client
from tests.unit.cli.bench.conftest import TEMPLATE_TOKENS, FakeServer


def test_calibration_finds_what_the_server_counts(fake: FakeServer) -> None:
    assert calibrate(fake.client, "m") == TokenScale(2.0, TEMPLATE_TOKENS)


def test_every_request_is_sent_once_and_measured(fake: FakeServer) -> None:
    work = Workload(clients=3, requests=7, prompt_tokens=25, output_tokens=4, seed="s")
    done: list[int] = []
    finished = run(fake.client, "m", work, TokenScale(2.0, TEMPLATE_TOKENS), done.append)
    assert done == list(range(1, 8))
    assert finished.summary.errors == 0
    assert finished.summary.output_tokens == 28
    assert finished.summary.prompt_tokens == 25
    assert len({body["messages"][0]["content"] for body in fake.bodies}) == 7


def test_as_many_requests_run_at_once_as_there_are_clients(fake: FakeServer) -> None:
    fake.together = threading.Barrier(4)
    run(fake.client, "m", Workload(4, 8, 10, 2), TokenScale())
    assert fake.most_at_once == 4


def test_refused_requests_are_errors_of_the_summary(fake: FakeServer) -> None:
    fake.failing = True
    summary = run(fake.client, "m", Workload(1, 2, 10, 2), TokenScale()).summary
    assert summary.errors == 2
    assert summary.first_error == "the queue is full"
    with pytest.raises(InvalidResponse, match="the queue is full"):
        calibrate(fake.client, "m")


def test_a_closed_port_is_an_error_and_no_traceback() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(InvalidResponse, match=str(port)):
            calibrate(Client(f"http://127.0.0.1:{port}"), "m")
