"""A trace of each request that a model answers, for OpenTelemetry.

The spans are made of the request's record when it has ended, from what is measured anyway: nothing
is done while it runs, and a thread sends them. Attributes have the names of the semantic
conventions for generative AI and, where those have none, of vLLM's traces; vLLM's older names of
tokens are there too. No texts.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from runner.server.request_log import Ended, RequestRecord, RequestSink

log = logging.getLogger("hearth")

_CLOSE_S = 2.0  # for the last spans to leave
_MAX_STATE_BYTES = 4096  # of tracestate; W3C asks for 512 at least
_WEBSOCKET = 101
_OPERATIONS: Mapping[str, tuple[str, ...]] = {  # by the ends of paths
    "chat": ("chat/completions", "api/chat", "messages", "responses"),
    "text_completion": ("completions", "completion", "api/generate", "infill"),
    "embeddings": ("embeddings", "embedding", "api/embed"),
    "rerank": ("rerank", "reranking", "score"),
    "transcription": ("audio/transcriptions", "audio/translations"),
    "speech": ("audio/speech",),
}
_BY_END = {end: operation for operation, ends in _OPERATIONS.items() for end in ends}


def provider_of(version: str, endpoint: str) -> TracerProvider:
    """What the OTEL_ variables say: resource, sampler, limits, batches and where they are sent.
    endpoint: that, for the log. Raises what the SDK raises for values that it cannot use."""
    resource = Resource.create({"service.version": version})
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "hearth"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(ToldOnce(OTLPSpanExporter(), endpoint)))
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a line for each attempt
    return provider


class ToldOnce:
    """An exporter, with a line in the log when spans are lost and one when they arrive again."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        result = self._exporter.export(spans)
        fails = result is not SpanExportResult.SUCCESS
        if fails and not self._fails:
            log.warning("nobody takes the traces at %s: they are lost", self._endpoint)
        elif self._fails and not fails:
            log.info("the traces arrive at %s again", self._endpoint)
        self._fails = fails
        return result

    def shutdown(self) -> None:
        """See SpanExporter."""
        self._exporter.shutdown()


class Traces(RequestSink):
    """Makes the spans of requests with provider's tracer."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("hearth")
        self._propagator = TraceContextTextMapPropagator()

    def add(self, record: RequestRecord) -> None:
        operation = _operation(record.scope["path"])
        if operation is None or (record.scope["method"] != "POST" and record.status != _WEBSOCKET):
            return
        name = f"{operation} {record.model}" if record.model else operation
        parent = self._parent(record.scope["headers"])
        span = self._tracer.start_span(
            name,
            parent,
            SpanKind.SERVER,
            _attributes(record, operation),
            start_time=record.began_ns,
        )
        if span.is_recording():
            if record.error_status is not None and record.error_status >= 500:
                span.set_status(StatusCode.ERROR)
            within = set_span_in_context(span)
            for part, begin_ns, end_ns, attributes in _parts(record):
                made = self._tracer.start_span(
                    part, within, attributes=attributes, start_time=begin_ns
                )
                made.end(end_ns)
        span.end(record.began_ns + _ns(record.took_s))

    async def close(self) -> None:
        # A daemon thread: a collector that hangs keeps no process.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_S)

    def _parent(self, headers: list[tuple[bytes, bytes]]) -> Context | None:
        """The span of the client that the request belongs to, as W3C's trace context has it."""
        given = [value for name, value in headers if name == b"traceparent"]
        if len(given) != 1:
            return None
        states = [value for name, value in headers if name == b"tracestate"]
        carrier = {"traceparent": given[0].decode("latin-1")}
        if sum(map(len, states)) <= _MAX_STATE_BYTES:
            carrier["tracestate"] = b",".join(states).decode("latin-1")
        return self._propagator.extract(carrier)


def _operation(path: str) -> str | None:
    return _BY_END.get("/".join(path.split("/")[-2:])) or _BY_END.get(path.rpartition("/")[2])


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def _attributes(record: RequestRecord, operation: str) -> dict[str, Any]:
    """Of the whole request; no texts."""
    found: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "hearth",
        "gen_ai.request.model": record.model,
        "gen_ai.request.id": record.request_id,
        "http.request.method": record.scope["method"],
        "url.path": record.scope["path"],
        "http.response.status_code": record.status,
        "error.type": record.error,
        "gen_ai.latency.e2e": record.took_s,
    }
    if record.usage is not None:
        usage = record.usage
        found |= {
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.prompt_tokens": usage.prompt_tokens,
        }
    if record.ended:
        first = record.ended[0]
        first_token_ns = first.at_ns - _ns(first.usage.decode_s) - record.began_ns
        found |= {
            "gen_ai.response.model": record.model,
            "gen_ai.response.finish_reasons": [each.reason for each in record.ended],
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "gen_ai.usage.completion_tokens": usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            "gen_ai.usage.cached_tokens": usage.cached_tokens,
            "gen_ai.usage.num_sequences": record.sequences,
            "gen_ai.latency.time_in_queue": usage.queue_s,
            "gen_ai.latency.time_to_first_token": first_token_ns / 1e9,
            "gen_ai.latency.time_in_model_prefill": usage.prefill_s,
            "gen_ai.latency.time_in_model_decode": usage.decode_s,
            "gen_ai.latency.time_in_model_inference": usage.prefill_s + usage.decode_s,
        }
    if record.sampling is not None:
        found |= {
            "gen_ai.request.temperature": record.sampling.temperature,
            "gen_ai.request.top_p": record.sampling.top_p,
            "gen_ai.request.max_tokens": record.max_tokens,
        }
    return {name: value for name, value in found.items() if value is not None}


def _parts(record: RequestRecord) -> Iterator[tuple[str, int, int, dict[str, int]]]:
    """The spans within: name, begin and end, attributes."""
    if record.leased_ns is not None and record.load_s:
        yield "load", record.leased_ns - _ns(record.load_s), record.leased_ns, {}
    for each in record.ended:
        yield from _parts_of(each)


def _parts_of(ended: Ended) -> Iterator[tuple[str, int, int, dict[str, int]]]:
    usage = ended.usage
    first_ns = ended.at_ns - _ns(usage.decode_s)
    begun_ns = first_ns - _ns(usage.prefill_s)
    yield "queue", begun_ns - _ns(usage.queue_s), begun_ns, {}
    prompt = {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }
    yield "prefill", begun_ns, first_ns, prompt
    yield "decode", first_ns, ended.at_ns, {"gen_ai.usage.output_tokens": usage.completion_tokens}
