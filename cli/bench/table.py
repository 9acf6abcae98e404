"""The rows that `hearth bench` prints, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cli.bench.load import BenchRun
from cli.bench.summary import Percentiles

HEADER = (
    "CLIENTS", "TTFT P50", "TTFT P99", "PROMPT", "PER TOKEN", "DECODE", "OVERALL", "ERRORS",
)  # fmt: skip


def row(run: BenchRun) -> tuple[str, ...]:
    """One run as a line of the table."""
    summary = run.summary
    return (
        str(run.workload.clients),
        _milliseconds(summary.ttft_s, "p50"),
        _milliseconds(summary.ttft_s, "p99"),
        _rate(summary.prompt_tokens_per_s),
        _milliseconds(summary.tpot_s, "p50"),
        _rate(summary.decode_tokens_per_s),
        _rate(summary.output_tokens_per_s),
        str(summary.errors) if summary.errors else "-",
    )


def _milliseconds(values: Percentiles | None, name: str) -> str:
    return "-" if values is None else f"{getattr(values, name) * 1000:.0f} ms"


def _rate(tokens_per_s: float | None) -> str:
    return "-" if tokens_per_s is None else f"{tokens_per_s:.1f} tok/s"


def as_json(runs: Sequence[BenchRun]) -> list[dict[str, Any]]:
    """All runs as JSON values: the workload, the summary and the cost of measuring."""
    return [
        {
            "workload": asdict(run.workload),
            "summary": asdict(run.summary),
            "generator_cpu_s": run.generator_cpu_s,
        }
        for run in runs
    ]
