"""The metrics of a daemon in Prometheus' text format.

Metrics that vLLM also has use vLLM's names, labels and meanings (docs.vllm.ai, "Production
metrics"), so that its dashboards work; the others begin with hearth. Requests are counted when they
end, and the state of the workers is read on each scrape. Nothing here costs anything per token.

A metric stands in one table, with the value that it shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE

from runner.errors import HearthError
from runner.models.observer import Observer
from runner.models.resident import Load
from runner.server.llamacpp.metrics import LlamaServerMetrics
from runner.types import Finish, Usage, WorkerStats

__all__ = ["CONTENT_TYPE", "WORKER_METRICS", "Metrics", "RequestMetric", "WorkerMetric"]

_STATS_TIMEOUT_S = 1.0
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_TOKENS = (1, 5, 10, 50, 100, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000)
_LABEL = ("model_name",)


@dataclass(frozen=True, slots=True)
class RequestMetric:
    """A metric of requests that ended. value: of one of them; None: it does not count. buckets
    make it a histogram, else it is a counter."""

    name: str
    value: Callable[[Usage], float | None]
    buckets: tuple[float, ...] = ()
    help: str = ""


@dataclass(frozen=True, slots=True)
class WorkerMetric:
    """A metric of a worker's state."""

    name: str
    help: str
    value: Callable[[WorkerStats], float]
    kind: type[Gauge] | type[Counter] = Gauge

    def collector(self, registry: CollectorRegistry) -> Gauge | Counter:
        """What shows it, one line for each model."""
        return self.kind(self.name, self.help, _LABEL, registry=registry)


def _first_token_s(usage: Usage) -> float:
    return usage.queue_s + usage.prefill_s


def _per_token_s(usage: Usage) -> float | None:
    after_first = usage.completion_tokens - 1
    return usage.decode_s / after_first if after_first > 0 else None


REQUEST_METRICS: Final = (
    RequestMetric("vllm:time_to_first_token_seconds", _first_token_s, _SECONDS),
    RequestMetric("vllm:request_time_per_output_token_seconds", _per_token_s, _TOKEN_SECONDS),
    RequestMetric(
        "vllm:e2e_request_latency_seconds",
        lambda usage: _first_token_s(usage) + usage.decode_s,
        _SECONDS,
    ),
    RequestMetric("vllm:request_queue_time_seconds", lambda usage: usage.queue_s, _SECONDS),
    RequestMetric("vllm:request_prefill_time_seconds", lambda usage: usage.prefill_s, _SECONDS),
    RequestMetric("vllm:request_decode_time_seconds", lambda usage: usage.decode_s, _SECONDS),
    RequestMetric("vllm:request_prompt_tokens", lambda usage: usage.prompt_tokens, _TOKENS),
    RequestMetric("vllm:request_generation_tokens", lambda usage: usage.completion_tokens, _TOKENS),
    RequestMetric("vllm:prompt_tokens", lambda usage: usage.prompt_tokens, help="Prompt tokens"),
    RequestMetric(
        "vllm:generation_tokens", lambda usage: usage.completion_tokens, help="Generated tokens"
    ),
    RequestMetric(
        "vllm:prefix_cache_queries",
        lambda usage: usage.prompt_tokens,
        help="Tokens looked up in the prefix cache",
    ),
    RequestMetric(
        "vllm:prefix_cache_hits",
        lambda usage: usage.cached_tokens,
        help="Tokens found in the prefix cache",
    ),
)
WORKER_METRICS: Final = (
    WorkerMetric(
        "vllm:num_requests_running", "Sequences in the batch", lambda stats: stats.running
    ),
    WorkerMetric("vllm:num_requests_waiting", "Waiting sequences", lambda stats: stats.waiting),
    WorkerMetric(
        "hearth:requests_paused",
        "Sequences out of the batch because their clients do not read",
        lambda stats: stats.paused,
    ),
    WorkerMetric(
        "vllm:kv_cache_usage_perc",
        "Fraction of the KV cache in use, from 0 to 1",
        lambda stats: stats.pool_used / max(1, stats.pool_tokens),
    ),
    WorkerMetric(
        "hearth:worker_memory_bytes",
        "Resident memory of the worker",
        lambda stats: stats.rss_bytes,
    ),
    WorkerMetric(
        "vllm:num_preemptions",
        "Preempted sequences",
        lambda stats: stats.preemptions,
        Counter,
    ),
    WorkerMetric(
        "vllm:spec_decode_num_draft_tokens",
        "Draft tokens proposed",
        lambda stats: stats.drafted_tokens,
        Counter,
    ),
    WorkerMetric(
        "vllm:spec_decode_num_accepted_tokens",
        "Draft tokens accepted",
        lambda stats: stats.confirmed_tokens,
        Counter,
    ),
)


class Metrics(Observer):
    """Counts for one daemon."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._of_requests = [(metric, self._collector(metric)) for metric in REQUEST_METRICS]
        self._success = Counter(
            "vllm:request_success",
            "Finished requests, by reason: stop, length, abort",
            (*_LABEL, "finished_reason"),
            registry=self.registry,
        )
        self._loads = self._counter("hearth:model_loads", "Model loads")
        self._load_s = self._histogram("hearth:model_load_seconds", _SECONDS)
        self._evictions = self._counter("hearth:model_evictions", "Models evicted to free memory")
        self._crashes = self._counter("hearth:worker_crashes", "Workers that crashed")
        self._llama_server = LlamaServerMetrics()

    def finished(self, model: str, finish: Finish) -> None:
        self._success.labels(model, finish.reason).inc()
        self._llama_server.finished(finish.usage)
        for metric, collector in self._of_requests:
            value = metric.value(finish.usage)
            if value is None:
                continue
            if isinstance(collector, Histogram):
                collector.labels(model).observe(value)
            else:
                collector.labels(model).inc(value)

    def embedded(self, tokens: int) -> None:
        self._llama_server.embedded(tokens)

    def aborted(self, model: str) -> None:
        self._success.labels(model, "abort").inc()

    def loaded(self, model: str, seconds: float) -> None:
        self._loads.labels(model).inc()
        self._load_s.labels(model).observe(seconds)

    def evicted(self, model: str) -> None:
        self._evictions.labels(model).inc()

    def crashed(self, model: str) -> None:
        self._crashes.labels(model).inc()

    async def text(self, present: Iterable[Load], uptime_s: float) -> bytes:
        """Everything counted so far, then the state of the workers now, each under the name of the
        first of its models. A worker that does not report its state in time is left out."""
        loads = [load for load in present if load.loaded]
        states = await asyncio.gather(*(_stats(load) for load in loads))
        now = CollectorRegistry()
        count = sum(len(load.residents) for load in loads)
        Gauge("hearth:models_loaded", "Loaded models", registry=now).set(count)
        Gauge("hearth:uptime_seconds", "Uptime of the daemon", registry=now).set(uptime_s)
        for metric in WORKER_METRICS:
            collector = metric.collector(now)
            for load, stats in zip(loads, states, strict=True):
                if stats is not None:
                    labelled = collector.labels(load.first_name)
                    labelled.inc(metric.value(stats))
        told = zip((load.worker.pid or 0 for load in loads), states, strict=True)
        known = [(pid, stats) for pid, stats in told if stats is not None]
        return b"".join(
            (generate_latest(self.registry), generate_latest(now), self._llama_server.text(known))
        )

    def _collector(self, metric: RequestMetric) -> Counter | Histogram:
        if metric.buckets:
            return self._histogram(metric.name, metric.buckets)
        return self._counter(metric.name, metric.help)

    def _counter(self, name: str, help: str) -> Counter:
        return Counter(name, help, _LABEL, registry=self.registry)

    def _histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        help = name.partition(":")[2].replace("_", " ")
        return Histogram(name, help, _LABEL, buckets=buckets, registry=self.registry)


async def _stats(load: Load) -> WorkerStats | None:
    try:
        return await asyncio.wait_for(load.worker.stats(), _STATS_TIMEOUT_S)
    except (HearthError, TimeoutError):
        return None
