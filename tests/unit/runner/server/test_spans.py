"""The spans of a request: their times, names and attributes, and whose trace they are part of."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.server.request_log import RequestRecord
from runner.types import Finish, GenerateRequest, SamplingParams, Usage
from tests.properties import examples

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from runner.server.spans import ToldOnce, Traces

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MS = 1_000_000


def record(path: str = "/v1/chat/completions", **headers: str) -> RequestRecord:
    """Of a POST with headers."""
    raw = [(name.encode(), text.encode()) for name, text in headers.items()]
    made = RequestRecord({"method": "POST", "path": path, "headers": raw})
    made.name_model("echo")
    made.status, made.request_id = 200, "req_1"
    return made


def ended(*records: RequestRecord) -> list[ReadableSpan]:
    """The spans of records, as they end."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces = Traces(provider)
    for each in records:
        traces.add(each)
    return list(exporter.get_finished_spans())


def test_a_request_is_a_trace_of_what_it_took() -> None:
    told = record()
    told.lease(0.25)
    told.start(GenerateRequest(sampling=SamplingParams(temperature=0.5, top_p=0.75), max_tokens=9))
    told.finish(Finish("stop", Usage(20, 5, 7, 0.5, 0.125, 0.0625)))
    end_ns = told.ended[0].at_ns
    told.began_ns = end_ns - 2000 * MS
    told.leased_ns, told.took_s = end_ns - 1000 * MS, 2.0
    *parts, root = ended(told)
    assert (root.name, root.kind) == ("chat echo", SpanKind.SERVER)
    assert (root.start_time, root.end_time) == (end_ns - 2000 * MS, end_ns)
    assert [part.name for part in parts] == ["load", "queue", "prefill", "decode"]
    bounds_ns = [bound for part in parts for bound in (part.start_time, part.end_time)]
    ends_ms = [(end_ns - bound_ns) / MS for bound_ns in bounds_ns]
    expected = [1250, 1000, 687.5, 187.5, 187.5, 62.5, 62.5, 0]
    assert ends_ms == pytest.approx(expected, abs=0.01)
    assert {part.parent.span_id for part in parts} == {root.context.span_id}
    assert {part.context.trace_id for part in parts} == {root.context.trace_id}
    assert dict(root.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "hearth",
        "gen_ai.request.model": "echo",
        "gen_ai.response.model": "echo",
        "gen_ai.request.id": "req_1",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.75,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.prompt_tokens": 20,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.completion_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.cached_tokens": 5,
        "gen_ai.usage.num_sequences": 1,
        "gen_ai.latency.e2e": 2.0,
        "gen_ai.latency.time_in_queue": 0.5,
        "gen_ai.latency.time_to_first_token": 1.9375,
        "gen_ai.latency.time_in_model_prefill": 0.125,
        "gen_ai.latency.time_in_model_decode": 0.0625,
        "gen_ai.latency.time_in_model_inference": 0.1875,
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions",
    }
    assert root.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/completions", "text_completion echo"),
        ("/completion", "text_completion echo"),
        ("/api/embeddings", "embeddings echo"),
        ("/v1/messages", "chat echo"),
        ("/v1/responses", "chat echo"),
        ("/v1/rerank", "rerank echo"),
        ("/v1/audio/speech", "speech echo"),
        ("/v1/messages/count_tokens", None),
        ("/v1/responses/resp_1/cancel", None),
        ("/api/show", None),
        ("/", None),
        ("*", None),
    ],
)
def test_what_a_model_answers_is_traced(path: str, name: str | None) -> None:
    assert [span.name for span in ended(record(path))] == ([name] if name else [])


def test_errors_are_named_and_those_of_the_daemon_are_errors() -> None:
    missing, crashed, lost, gone = record(), record(), record(), record()
    missing.status, crashed.status, gone.status = 404, 500, None
    missing.fail("model_not_found", 404)
    crashed.fail("worker_crashed", 500)
    lost.fail("worker_crashed", 500)  # after its answer began with 200
    gone.fail("client_disconnected", 499)
    spans = ended(missing, crashed, lost, gone)
    assert [span.attributes["error.type"] for span in spans] == [
        "model_not_found", "worker_crashed", "worker_crashed", "client_disconnected",
    ]  # fmt: skip
    errors = [span.status.status_code is StatusCode.ERROR for span in spans]
    assert errors == [False, True, True, False]
    assert "http.response.status_code" not in spans[3].attributes


def test_a_request_of_many_sequences_has_a_bounded_trace() -> None:
    told = record()
    for _ in range(100):
        told.finish(Finish("length", Usage(1, 0, 2, 0.0, 0.0, 0.0)))
    spans = ended(told)
    assert len(spans) == 1 + 3 * 16
    assert spans[-1].attributes["gen_ai.usage.num_sequences"] == 100
    assert spans[-1].attributes["gen_ai.usage.output_tokens"] == 200


def test_the_clients_trace_goes_on() -> None:
    (span,) = ended(record(traceparent=f"00-{TRACE}-{SPAN}-01", tracestate="a=1,b=2"))
    assert format(span.context.trace_id, "032x") == TRACE
    assert format(span.parent.span_id, "016x") == SPAN
    assert span.parent.is_remote
    assert span.context.trace_state.to_header() == "a=1,b=2"


def test_what_the_client_does_not_sample_is_not_sent() -> None:
    assert ended(record(traceparent=f"00-{TRACE}-{SPAN}-00")) == []


def test_sampling_is_as_the_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    assert len(ended(record(), record(traceparent=f"00-{TRACE}-{SPAN}-01"))) == 1
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    assert ended(record(traceparent=f"00-{TRACE}-{SPAN}-01")) == []


@pytest.mark.parametrize(
    "parent",
    ["", "x", f"00-{TRACE}-{SPAN}", f"00-{'0' * 32}-{SPAN}-01", f"ff-{TRACE}-{SPAN}-01",
     f"00-{TRACE.upper()}-{SPAN}-01", "00-" + "é" * 40],
)  # fmt: skip
def test_a_traceparent_that_is_none_begins_a_trace_of_its_own(parent: str) -> None:
    (span,) = ended(record(traceparent=parent))
    assert span.parent is None


@given(st.binary(max_size=80), st.binary(max_size=80), st.booleans())
@examples(60)
def test_no_header_keeps_a_request_from_its_trace(parent: bytes, state: bytes, valid: bool) -> None:
    told = record()
    parent = f"00-{TRACE}-{SPAN}-01".encode() if valid else parent
    told.scope["headers"] = [(b"traceparent", parent), (b"tracestate", state)]
    assert len(ended(told)) <= 1  # none where the flags of a parent say so


def test_a_long_tracestate_or_several_parents_are_left_out() -> None:
    both = record(traceparent=f"00-{TRACE}-{SPAN}-01")
    both.scope["headers"] = both.scope["headers"] * 2
    long = record(traceparent=f"00-{TRACE}-{SPAN}-01", tracestate="a=" + "1" * 5000)
    first, second = ended(both, long)
    assert first.parent is None
    assert second.parent is not None
    assert not second.context.trace_state


def test_a_collector_that_is_not_there_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    results = iter([False, False, True, True, False])

    class Collector:
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS if next(results) else SpanExportResult.FAILURE

    exporter = ToldOnce(Collector(), "http://here")
    with caplog.at_level("INFO"):
        for _ in range(5):
            exporter.export([])
    assert [text.partition(" the traces ")[0] for text in caplog.messages] == [
        "nobody takes", "the traces arrive at http://here again", "nobody takes",
    ]  # fmt: skip


def test_times_are_those_of_the_clock() -> None:
    before_ns = time.time_ns()
    told = record()
    told.lease(0.0)
    assert before_ns <= told.began_ns <= (told.leased_ns or 0) <= time.time_ns()
    assert [span.name for span in ended(told)] == ["chat echo"]  # nothing was waited for
