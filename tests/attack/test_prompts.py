"""Texts that would hold a model: refused when it is known that they cannot fit, while another chat
of the same model goes on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx
import psutil
import pytest

from tests.conftest import RunningDaemon, running_daemon

SIZE = 3_500_000
TEXTS = {
    "letters": "a" * SIZE,
    "spaces": " " * SIZE,
    "newlines": "\n" * SIZE,
    "zero bytes": "\0" * SIZE,
    "control tokens": "<|im_start|>" * (SIZE // 12),
    "halves of control tokens": "<|im_start" * (SIZE // 10),
    "words": "some words " * (SIZE // 11),
    "Han": "中" * (SIZE // 3),
}
PHRASES = ("maximum context length is", "prompt is too long")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running_daemon(tmp_path_factory.mktemp("prompts"), ()) as daemon:
        with daemon.client() as client:
            chat(client, "hello")  # the model is loaded
            client.post("/tokenize", json={"model": "ember", "content": "a b " * 20_000})
        yield daemon


def chat(client: httpx.Client, text: str, **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": text}]
    body = {"model": "ember", "messages": messages, "max_tokens": 4, "temperature": 0, **fields}
    return client.post("/v1/chat/completions", json=body)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_that_cannot_fit_is_refused_as_too_long(daemon: RunningDaemon, text: str) -> None:
    with daemon.client() as client:
        answer = chat(client, text)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert all(phrase in error["message"] for phrase in PHRASES)
    assert "at least" in error["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/generate", {"prompt": TEXTS["control tokens"], "raw": True, "truncate": False}),
        ("/v1/completions", {"prompt": TEXTS["letters"]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": TEXTS["zero bytes"]}],
                          "max_tokens": 4}),
    ],
)  # fmt: skip
def test_and_on_the_other_surfaces(daemon: RunningDaemon, path: str, body: dict[str, Any]) -> None:
    with daemon.client() as client:
        answer = client.post(path, json={"model": "ember", **body})
    assert answer.status_code == 400
    assert "maximum context length is" in answer.text


@pytest.mark.parametrize("kind", ["letters", "zero bytes", "control tokens"])
def test_a_text_that_may_be_cut_costs_no_more_than_its_ends(
    daemon: RunningDaemon, kind: str
) -> None:
    options = {"num_predict": 1}
    body = {"model": "ember", "prompt": TEXTS[kind], "options": options, "stream": False}
    with daemon.client() as client:
        worker = psutil.Process(daemon.pid).children()[0]
        before_s = sum(worker.cpu_times()[:2])
        answer = client.post("/api/generate", json=body)
        took_s = sum(worker.cpu_times()[:2]) - before_s
    assert answer.status_code == 200, answer.text
    assert answer.json()["tokens_dropped"] > 0
    assert took_s < 10  # a prompt of the whole context; 4 MB in whole take longer


def test_a_conversation_that_may_be_shortened_leaves_out_what_is_too_long(
    daemon: RunningDaemon,
) -> None:
    long = [
        {"role": "user", "content": "some words " * 20_000},
        {"role": "assistant", "content": "."},
    ]
    body = {
        "model": "ember",
        "messages": [*long * 8, {"role": "user", "content": "hello"}],
        "options": {"num_predict": 2},
        "stream": False,
    }
    with daemon.client() as client:
        answer = client.post("/api/chat", json=body)
    assert answer.status_code == 200, answer.text


def test_another_chat_of_the_model_is_served_meanwhile(daemon: RunningDaemon) -> None:
    """Long texts that are counted to their end, and one that is short."""
    texts = [text[:300_000] for text in TEXTS.values()]

    def attack(text: str) -> None:
        with daemon.client() as client:
            client.post("/tokenize", json={"model": "ember", "content": text})

    threads = [threading.Thread(target=attack, args=(text,)) for text in texts]
    with daemon.client() as client:
        for thread in threads:
            thread.start()
        waits_s = []
        while any(thread.is_alive() for thread in threads):
            began_s = time.monotonic()
            assert chat(client, "hello", max_tokens=1).status_code == 200
            waits_s.append(time.monotonic() - began_s)
    for thread in threads:
        thread.join()
    assert waits_s
    assert max(waits_s) < 5, waits_s  # idle machines: under 1 s


def test_a_client_that_has_gone_leaves_no_work(daemon: RunningDaemon) -> None:
    """Of two that count the same text one leaves early: the other's end comes after as much work as
    that of one, not of both."""
    (worker,) = psutil.Process(daemon.pid).children()
    body = {"model": "ember", "content": TEXTS["words"][:1_000_000]}

    def worked_s() -> float:
        return sum(worker.cpu_times()[:2])

    with daemon.client() as client:
        chat(client, "hello", max_tokens=1)
        began_s = worked_s()
        assert client.post("/tokenize", json=body).status_code == 200
        whole_s = worked_s() - began_s
        with closing(HTTPConnection("127.0.0.1", daemon.port, timeout=120)) as leaver:
            leaver.request("POST", "/tokenize", json.dumps(body))
            end_s = time.monotonic() + 60
            while worked_s() - began_s < 1.1 * whole_s:
                assert time.monotonic() < end_s
        left_s = worked_s()
        assert client.post("/tokenize", json=body).status_code == 200
        assert worked_s() - left_s < 1.6 * whole_s


@pytest.mark.parametrize("stop", ["a" * SIZE, ["a" * 40_000]])
def test_stop_strings_have_a_length(daemon: RunningDaemon, stop: str | list[str]) -> None:
    with daemon.client() as client:
        answer = chat(client, "hello", stop=stop)
    assert answer.status_code == 400
    assert "256 bytes" in answer.text
    assert answer.json()["error"]["param"] == "stop"


def test_millions_of_ids_are_no_longer_a_text(daemon: RunningDaemon) -> None:
    with closing(HTTPConnection("127.0.0.1", daemon.port, timeout=120)) as client:
        body = '{"model": "ember", "tokens": [' + ",".join(["9"] * 1_000_001) + "]}"
        client.request("POST", "/detokenize", body, {"content-type": "application/json"})
        assert client.getresponse().status in (400, 413, 422)
