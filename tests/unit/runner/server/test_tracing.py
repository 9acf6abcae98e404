"""Whether traces are sent, by the variables of OpenTelemetry."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from runner.server.tracing import open_traces

_HERE = "http://user:secret-canary@127.0.0.1:4318"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variables of OpenTelemetry."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": _HERE, "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": _HERE, "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": _HERE},
        {"OTEL_SERVICE_NAME": "hearth", "OTEL_TRACES_SAMPLER": "always_on"},
    ],
)
def test_nothing_is_sent_that_was_not_asked_for(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert open_traces("1", offline=False) is None
    assert caplog.text == ""


def test_without_a_collector_no_part_of_the_sdk_is_loaded() -> None:
    program = (
        "import sys; from runner.server import app; from runner.server.tracing import open_traces;"
        "assert open_traces('1', False) is None;"
        "sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    )
    environ = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    subprocess.run([sys.executable, "-c", program], check=True, env=environ)


@pytest.mark.parametrize(
    ("variables", "offline", "reason"),
    [
        ({}, False, "the extra otel is not installed: pip install 'hearth[otel]'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False, "and only http/protobuf is spoken"),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            False,
            "PROTOCOL=http/json, and",
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://a.example"},
            True,
            "HEARTH_OFFLINE is set",
        ),
    ],
)
def test_what_cannot_be_sent_as_asked_for_is_said(
    variables: dict[str, str],
    offline: bool,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "runner.server.spans", None)
    for name, text in {"OTEL_EXPORTER_OTLP_ENDPOINT": _HERE, **variables}.items():
        monkeypatch.setenv(name, text)
    assert open_traces("1", offline) is None
    assert "no traces are sent to " in caplog.text
    assert reason in caplog.text
    assert "secret-canary" not in caplog.text


def test_a_collector_of_this_machine_is_no_network() -> None:
    pytest.importorskip("opentelemetry.sdk")
    program = (
        "import asyncio; from runner.server.tracing import open_traces;"
        "traces = open_traces('1', True); assert traces is not None; asyncio.run(traces.close())"
    )
    environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:9"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environ)
