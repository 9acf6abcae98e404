"""Traces of requests, at a collector that is a process of its own, and at one that hangs."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import RunningDaemon, StartDaemon

CANARY = "canary-in-the-coal-mine"
CHAT: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": CANARY}]}
WHOLE = {**CHAT, "stream": False}
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")


@pytest.fixture
def collector() -> Iterator[subprocess.Popen[str]]:
    """A collector; the first line that it writes is its port."""
    command = [sys.executable, "-m", "tests.integration.otlp_receiver"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.terminate()


def stopped(daemon: RunningDaemon, collector: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """What the daemon sends to the end, each request of the exporter."""
    assert daemon.stop() == 0
    collector.terminate()
    assert collector.stdout is not None
    return [json.loads(line) for line in collector.stdout]


def attributes_of(told: dict[str, Any]) -> dict[str, Any]:
    """Those of a span or a resource, without the types of their values."""
    return {each["key"]: next(iter(each["value"].values())) for each in told["attributes"]}


def test_a_collector_gets_a_trace_of_each_answer_and_no_word_of_it(
    start_daemon: StartDaemon, collector: subprocess.Popen[str]
) -> None:
    assert collector.stdout is not None
    port = collector.stdout.readline().strip()
    daemon = start_daemon(
        env={
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=mine",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        }
    )
    ours = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
    with daemon.client() as client:
        client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 3}, headers=ours)
        said = client.post("/api/chat", json=WHOLE, headers={"x-request-id": "my-id"})
        client.post("/v1/embeddings", json={"model": "echo", "input": CANARY})
        client.post("/v1/completions", json={"model": "no-such", "prompt": CANARY})
        client.post("/v1/completions", json={"model": "echo", "prompt": CANARY, "n": 2, "seed": 1})
        client.get("/api/tags")
    assert said.status_code == 200
    sent = stopped(daemon, collector)
    assert CANARY not in json.dumps(sent)
    places = {(each["path"], each["headers"]["x-tenant"]) for each in sent}
    assert places == {("/v1/traces", "mine")}
    (resource,) = {json.dumps(attributes_of(group["resource"]), sort_keys=True)
                   for each in sent for group in each["resourceSpans"]}  # fmt: skip
    facts = json.loads(resource)
    assert (facts["service.name"], facts["deployment.environment.name"]) == ("hearth", "test")
    spans = [span for each in sent for group in each["resourceSpans"]
             for scope in group["scopeSpans"] for span in scope["spans"]]  # fmt: skip
    roots = [span for span in spans if span["kind"] == "SPAN_KIND_SERVER"]
    assert [span["name"] for span in roots] == [
        "chat echo", "chat echo", "embeddings echo", "text_completion no-such",
        "text_completion echo",
    ]  # fmt: skip
    first, second, embedded, missing, double = map(attributes_of, roots)
    assert base64.b64decode(roots[0]["traceId"]).hex() == TRACE
    assert base64.b64decode(roots[0]["parentSpanId"]).hex() == SPAN
    assert roots[0]["traceState"] == "vendor=1"
    assert (first["gen_ai.usage.output_tokens"], first["gen_ai.request.max_tokens"]) == ("3", "3")
    assert (second["gen_ai.request.id"], "parentSpanId" in roots[1]) == ("my-id", False)
    assert int(second["gen_ai.usage.input_tokens"]) == said.json()["prompt_eval_count"]
    assert int(embedded["gen_ai.usage.input_tokens"]) > 0
    assert missing["error.type"] == "model_not_found"
    assert missing["http.response.status_code"] == "404"
    assert double["gen_ai.usage.num_sequences"] == "2"
    within = [
        [part for part in spans if part.get("parentSpanId") == root["spanId"]] for root in roots
    ]
    named = [[part["name"] for part in parts] for parts in within]
    assert named[0] == ["load", "queue", "prefill", "decode"]
    assert named[1:] == [["queue", "prefill", "decode"], [], [], ["queue", "prefill", "decode"] * 2]
    for root, parts in zip(roots, within, strict=True):
        for part in parts:
            assert int(root["startTimeUnixNano"]) <= int(part["startTimeUnixNano"])
            assert int(part["startTimeUnixNano"]) <= int(part["endTimeUnixNano"])
            assert int(part["endTimeUnixNano"]) <= int(root["endTimeUnixNano"])


def test_a_collector_that_hangs_delays_neither_an_answer_nor_the_end(
    start_daemon: StartDaemon,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        daemon = start_daemon(
            env={
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
                "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
                "OTEL_BSP_SCHEDULE_DELAY": "1",
                "OTEL_BSP_MAX_QUEUE_SIZE": "4",
                "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4",
            }
        )
        with daemon.client() as client:
            client.post("/v1/chat/completions", json=CHAT)
            taken, _ = silent.accept()  # and never answered
            with taken:
                for _ in range(5):
                    assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
                assert daemon.stop() == 0
    assert not [line for line in daemon.lines if "WARNING" in line or "ERROR" in line]


def test_a_collector_that_is_down_is_told_once(start_daemon: StartDaemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    daemon = start_daemon(
        env={
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "0.1",
            "OTEL_BSP_SCHEDULE_DELAY": "1",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
        }
    )
    with daemon.client() as client:
        for _ in range(3):
            assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
    assert daemon.stop() == 0
    told = [line for line in daemon.lines if " hearth" in line and "traces" in line]
    assert len(told) == 2, told
    assert f"traces are sent to http://127.0.0.1:{port}" in told[0]
    assert f"nobody takes the traces at http://127.0.0.1:{port}: they are lost" in told[1]
    assert not [line for line in daemon.lines if "opentelemetry" in line]
