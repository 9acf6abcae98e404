"""GET /metrics in Prometheus' text format.

What vLLM measures too has vLLM's name, labels and meaning (docs.vllm.ai, "Production metrics"), so
that its dashboards work; the rest begins with hearth. Requests are counted when they end, the
state of the workers is asked for when somebody looks. Nothing here costs anything per token.
"""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from runner.errors import HearthError
from runner.models.resident import Resident
from runner.server.http_request import HttpRequest
from runner.types import Finish, WorkerStats

_STATS_TIMEOUT_S = 1.0
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_TOKENS = (1, 5, 10, 50, 100, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000)
_LABEL = ("model_name",)


class Metrics:
    """Counts for one daemon. An Observer of its models."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._ttft = self._histogram("vllm:time_to_first_token_seconds", _SECONDS)
        self._per_token = self._histogram(
            "vllm:request_time_per_output_token_seconds", _TOKEN_SECONDS
        )
        self._whole = self._histogram("vllm:e2e_request_latency_seconds", _SECONDS)
        self._queued = self._histogram("vllm:request_queue_time_seconds", _SECONDS)
        self._prefill = self._histogram("vllm:request_prefill_time_seconds", _SECONDS)
        self._decode = self._histogram("vllm:request_decode_time_seconds", _SECONDS)
        self._prompt = self._histogram("vllm:request_prompt_tokens", _TOKENS)
        self._generation = self._histogram("vllm:request_generation_tokens", _TOKENS)
        self._prompt_tokens = self._counter("vllm:prompt_tokens", "Tokens of prompts")
        self._generated = self._counter("vllm:generation_tokens", "Tokens generated")
        self._queries = self._counter("vllm:prefix_cache_queries", "Tokens looked up")
        self._hits = self._counter("vllm:prefix_cache_hits", "Tokens found in the prefix cache")
        self._success = Counter(
            "vllm:request_success",
            "Requests ended, by reason: stop, length, abort",
            (*_LABEL, "finished_reason"),
            registry=self.registry,
        )
        self._loads = self._counter("hearth:model_loads", "Loads of a model")
        self._load_s = self._histogram("hearth:model_load_seconds", _SECONDS)
        self._evictions = self._counter("hearth:model_evictions", "Unloads to make room")
        self._crashes = self._counter("hearth:worker_crashes", "Workers ended by a fault")

    def finished(self, model: str, finish: Finish) -> None:
        """See Observer."""
        usage = finish.usage
        self._success.labels(model, finish.reason).inc()
        first_s = usage.queue_s + usage.prefill_s
        self._ttft.labels(model).observe(first_s)
        self._whole.labels(model).observe(first_s + usage.decode_s)
        self._queued.labels(model).observe(usage.queue_s)
        self._prefill.labels(model).observe(usage.prefill_s)
        self._decode.labels(model).observe(usage.decode_s)
        self._prompt.labels(model).observe(usage.prompt_tokens)
        self._generation.labels(model).observe(usage.completion_tokens)
        if usage.completion_tokens > 1:
            self._per_token.labels(model).observe(usage.decode_s / (usage.completion_tokens - 1))
        self._prompt_tokens.labels(model).inc(usage.prompt_tokens)
        self._generated.labels(model).inc(usage.completion_tokens)
        self._queries.labels(model).inc(usage.prompt_tokens)
        self._hits.labels(model).inc(usage.cached_tokens)

    def aborted(self, model: str, count: int) -> None:
        """See Observer."""
        self._success.labels(model, "abort").inc(count)

    def loaded(self, model: str, seconds: float) -> None:
        """See Observer."""
        self._loads.labels(model).inc()
        self._load_s.labels(model).observe(seconds)

    def evicted(self, model: str) -> None:
        """See Observer."""
        self._evictions.labels(model).inc()

    def crashed(self, model: str) -> None:
        """See Observer."""
        self._crashes.labels(model).inc()

    def text(self, now: CollectorRegistry) -> bytes:
        """Everything counted so far, then what now holds."""
        return generate_latest(self.registry) + generate_latest(now)

    def _counter(self, name: str, help: str) -> Counter:
        return Counter(name, help, _LABEL, registry=self.registry)

    def _histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        help = name.partition(":")[2].replace("_", " ")
        return Histogram(name, help, _LABEL, buckets=buckets, registry=self.registry)


async def metrics(http: HttpRequest) -> None:
    """Answer with all metrics. A worker that does not tell its state in time is left out."""
    services = http.services
    residents = [resident for resident in services.manager.present if resident.loaded]
    told = await asyncio.gather(*(_stats(resident) for resident in residents))
    now = CollectorRegistry()
    Gauge("hearth:models_loaded", "Models with a worker", registry=now).set(len(residents))
    Gauge("hearth:uptime_seconds", "Age of the daemon", registry=now).set(services.uptime_s)
    gauges = _Gauges(now)
    for resident, stats in zip(residents, told, strict=True):
        if stats is not None:
            gauges.set(resident.bundle.name.short, stats)
    await http.reply_bytes(services.metrics.text(now), CONTENT_TYPE_LATEST)


class _Gauges:
    """The state of the workers at this moment."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._of = {
            name: Gauge(name, help, _LABEL, registry=registry)
            for name, help in (
                ("vllm:num_requests_running", "Sequences in the batch"),
                ("vllm:num_requests_waiting", "Sequences that wait"),
                ("vllm:kv_cache_usage_perc", "Share of the cache in use, 1 is all of it"),
                ("hearth:worker_memory_bytes", "Resident memory of the worker"),
            )
        }
        self._counters = {
            name: Counter(name, help, _LABEL, registry=registry)
            for name, help in (
                ("vllm:num_preemptions", "Sequences set back for cache or more urgent ones"),
                ("vllm:spec_decode_num_draft_tokens", "Tokens proposed before they were computed"),
                ("vllm:spec_decode_num_accepted_tokens", "Tokens of those that were confirmed"),
            )
        }

    def set(self, model: str, stats: WorkerStats) -> None:
        """Take what a worker tells."""
        values = (
            stats.running,
            stats.waiting,
            stats.pool_used / max(1, stats.pool_tokens),
            stats.rss_bytes,
        )
        for gauge, value in zip(self._of.values(), values, strict=True):
            gauge.labels(model).set(value)
        totals = (stats.preemptions, stats.drafted_tokens, stats.confirmed_tokens)
        for counter, total in zip(self._counters.values(), totals, strict=True):
            counter.labels(model).inc(total)


async def _stats(resident: Resident) -> WorkerStats | None:
    try:
        return await asyncio.wait_for(resident.worker.stats(), _STATS_TIMEOUT_S)
    except (HearthError, TimeoutError):
        return None
