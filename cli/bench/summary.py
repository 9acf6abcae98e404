"""A run of many requests in figures: percentiles, throughput, decode rate. Times in seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cli.bench.request_metrics import RequestMetrics


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of a measure, by linear interpolation."""

    p50: float
    p90: float
    p99: float
    mean: float


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """The percentiles of values; None when there are none."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p99 = (percentile(ordered, share) for share in (0.5, 0.9, 0.99))
    return Percentiles(p50, p90, p99, sum(values) / len(values))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which share (0 .. 1) of the ordered values lie. Needs one value."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True, slots=True)
class Summary:
    """A run of many requests. prompt_tokens_per_s counts only the time in which a prompt was being
    computed (see prompt_rate), decode_tokens_per_s that in which every client was decoding (see
    decode_rate), output_tokens_per_s all time from first request to last answer."""

    requests: int
    errors: int
    wall_s: float
    prompt_tokens: float | None
    cached_tokens: float | None
    output_tokens: int
    output_tokens_per_s: float
    prompt_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    ttft_s: Percentiles | None
    tpot_s: Percentiles | None
    itl_s: Percentiles | None
    e2e_s: Percentiles | None
    first_error: str | None = None


def summarize(all_measured: Sequence[RequestMetrics], clients: int) -> Summary:
    """The summary of a run. Raises ValueError when all_measured is empty."""
    good = [one for one in all_measured if one.error is None]
    wall_s = max(m.ended_s for m in all_measured) - min(m.started_s for m in all_measured)
    tokens = sum(one.output_tokens for one in good)
    return Summary(
        requests=len(all_measured),
        errors=len(all_measured) - len(good),
        wall_s=wall_s,
        prompt_tokens=_mean([one.prompt_tokens for one in good]),
        cached_tokens=_mean([one.cached_tokens for one in good]),
        output_tokens=tokens,
        output_tokens_per_s=tokens / wall_s,
        prompt_tokens_per_s=prompt_rate(good),
        decode_tokens_per_s=decode_rate(good, clients),
        ttft_s=percentiles([one.ttft_s for one in good]),
        tpot_s=percentiles([one.tpot_s for one in good if one.tpot_s is not None]),
        itl_s=percentiles([gap for one in good for gap in inter_token_latencies(one)]),
        e2e_s=percentiles([one.ended_s - one.started_s for one in good]),
        first_error=next((one.error for one in all_measured if one.error), None),
    )


def inter_token_latencies(one: RequestMetrics) -> list[float]:
    """The times between the pieces of text of a request."""
    return [later - earlier for earlier, later in pairwise(one.text_times_s)]


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def prompt_rate(good: Sequence[RequestMetrics]) -> float | None:
    """Prompt tokens per second, those of the cache left out, in the time in which at least one
    request waited for its first text. None when the server does not count them."""
    tokens = sum((one.prompt_tokens or 0) - (one.cached_tokens or 0) for one in good)
    total_s, until_s = 0.0, -math.inf
    for started_s, first_s in sorted((one.started_s, one.text_times_s[0]) for one in good):
        total_s += max(0.0, first_s - max(started_s, until_s))
        until_s = max(until_s, first_s)
    return tokens / total_s if tokens and total_s else None


def decode_rate(good: Sequence[RequestMetrics], clients: int) -> float | None:
    """Tokens per second over all requests, in the time in which exactly `clients` of them were
    between first and last text. None when there was no such time."""
    edges = sorted(
        edge for one in good for edge in ((one.text_times_s[0], 1), (one.text_times_s[-1], -1))
    )
    running, tokens, total_s = 0, 0.0, 0.0
    for (moment, step), (following, _) in pairwise(edges):
        running += step
        if running == clients and following > moment:
            total_s += following - moment
            tokens += sum(_tokens_within(one, moment, following) for one in good)
    return tokens / total_s if total_s else None


def _tokens_within(one: RequestMetrics, start_s: float, end_s: float) -> float:
    """Decoded tokens that arrived after start_s and up to end_s. The first piece is the fruit
    of the prefill; a piece weighs what its request's pieces do on average."""
    pieces = sum(start_s < moment <= end_s for moment in one.text_times_s[1:])
    return pieces * one.output_tokens / len(one.text_times_s)
