"""Grammars that are much work, asked for again and again: another chat of the model and /health go
on meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.attack.test_budgets import chain
from tests.conftest import RunningDaemon, running_daemon

AMBIGUOUS = 'start: s\ns: s s | s s s | "a" |'
ATTACKS: dict[str, dict[str, Any]] = {
    "an ambiguous grammar": {"guided_grammar": AMBIGUOUS, "max_tokens": 1000, "ignore_eos": True},
    "a chain of rules": {"guided_grammar": chain("X ::= Y", 900)},
    "rules that double": {"guided_grammar": chain("X ::= Y Y", 40)},
    "a deep schema": {"guided_json": '{"items":' * 5000 + "{}" + "}" * 5000},
    "a long constant": {"guided_json": json.dumps({"const": "a" * 500_000})},
}
CHATS = 6
MAX_WAIT_S = 10.0  # idle machines: under 0.5 s


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running_daemon(tmp_path_factory.mktemp("grammars"), ()) as daemon:
        with daemon.client() as client:
            assert chat(client).status_code == 200  # the model is loaded
        yield daemon


def chat(client: httpx.Client, **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": "ember", "messages": messages, "max_tokens": 1, "temperature": 0, **fields}
    return client.post("/v1/chat/completions", json=body)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_another_chat_and_the_health_go_on(daemon: RunningDaemon, attack: dict[str, Any]) -> None:
    enough = threading.Event()
    answers: list[httpx.Response] = []

    def go_on() -> None:
        with daemon.client() as client:
            while not enough.is_set():
                answers.append(chat(client, **attack))

    attackers = [threading.Thread(target=go_on) for _ in range(2)]
    for each in attackers:
        each.start()
    waits_s: list[float] = []
    with daemon.client() as client:
        while len(waits_s) < CHATS or not answers:
            began_s = time.monotonic()
            assert chat(client).status_code == 200
            assert client.get("/health").status_code == 200
            waits_s.append(time.monotonic() - began_s)
    enough.set()
    for each in attackers:
        each.join()
    assert max(waits_s) < MAX_WAIT_S, waits_s
    wrong = [answer.text for answer in answers if answer.status_code not in (200, 400, 503)]
    assert not wrong, wrong
    print(f"{max(waits_s):.2f} s at most of {len(waits_s)}; {answers[0].text[:120]}")
