"""The page of all metrics, from what the daemon registers."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from docs.generator.markdown import cell, code, table
from runner.server.llamacpp.metrics import LlamaServerMetrics
from runner.server.metrics import WORKER_METRICS, Metrics

_INTRO = """\
# Metrics

`GET /metrics` answers in Prometheus' text format. Metrics that vLLM also has use vLLM's names,
labels and meanings, so its dashboards work; hearth's own begin with `hearth:`. Those that begin
with `llamacpp:` have llama-server's names and are sums over all models, without labels. Requests
are counted when they end, and the state of the workers is read on each request for metrics, so
metrics cost nothing per token. Once the daemon has API keys, `/metrics` needs a key with the scope
`metrics`, because it counts the usage of all keys.

The label is `model_name`; `vllm:request_success_total` also has `finished_reason`: `stop`, `length`
or `abort`. `hearth:models_loaded` and `hearth:uptime_seconds` have no label. Metrics of a worker
have the name of the first of the models that share it.
"""


def page() -> str:
    """The page."""
    rows = [
        (code(_name(family)), family.type, cell(family.documentation))
        for family in sorted(_families(), key=lambda family: family.name)
    ]
    return f"{_INTRO}\n{table(('name', 'type', 'meaning'), rows)}\n"


def _families() -> Iterator[Metric]:
    yield from Metrics().registry.collect()
    now = CollectorRegistry()
    for metric in WORKER_METRICS:
        metric.collector(now)
    yield from now.collect()
    yield from llama_server_metrics()
    yield Metric("hearth:models_loaded", "Loaded models", "gauge")
    yield Metric("hearth:uptime_seconds", "Uptime of the daemon", "gauge")


def llama_server_metrics() -> Iterator[Metric]:
    """Those that are written by hand."""
    lines = LlamaServerMetrics().text(()).decode().splitlines()
    for about, kind in zip(lines[::3], lines[1::3], strict=False):
        _, _, name, text = about.split(" ", 3)
        plain = kind.rsplit(" ", 1)[1]
        counted = plain == "counter" and name.endswith("_total")
        yield Metric(name.removesuffix("_total"), text, "counter" if counted else "gauge")


def _name(family: Metric) -> str:
    """The name as a query writes it."""
    return f"{family.name}_total" if family.type == "counter" else family.name
