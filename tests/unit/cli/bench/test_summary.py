"""Many requests in figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.bench.request_metrics import RequestMetrics
from cli.bench.summary import decode_rate, percentile, percentiles, prompt_rate, summarize
from tests.properties import examples


def answered(started_s: float, *times_s: float, tokens: int | None = None) -> RequestMetrics:
    """A request with text at the given times."""
    return RequestMetrics(started_s, times_s[-1], times_s, output_tokens=tokens or len(times_s))


def test_percentiles_are_interpolated() -> None:
    assert percentile([1.0, 2.0, 3.0, 5.0], 0.5) == 2.5
    values = percentiles([3.0, 1.0, 2.0])
    assert values is not None
    assert (values.p50, values.mean) == (2.0, 2.0)
    assert values.p90 == pytest.approx(2.8)


def test_nothing_measured_has_no_spread() -> None:
    assert percentiles([]) is None


@examples(30)
@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_lies_between_the_extremes(values: list[float], share: float) -> None:
    ordered = sorted(values)
    assert ordered[0] <= percentile(ordered, share) <= ordered[-1]


def test_the_decode_rate_counts_only_the_time_when_all_clients_decode() -> None:
    early = answered(0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    late = answered(0.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    assert decode_rate([early, late], 2) == pytest.approx(4 / 2.0)
    assert decode_rate([early, late], 1) == pytest.approx(4 / 4.0)


def prompted(started_s: float, first_s: float, prompt: int, cached: int = 0) -> RequestMetrics:
    """A request whose prompt was computed between the two times."""
    return RequestMetrics(started_s, first_s + 9, (first_s,), prompt, cached, 1)


def test_the_prompt_rate_counts_only_the_time_in_which_a_prompt_was_computed() -> None:
    assert prompt_rate([prompted(0.0, 2.0, 100)]) == 50
    assert prompt_rate([prompted(0.0, 2.0, 100, cached=60), prompted(5.0, 6.0, 20)]) == 20
    assert (
        prompt_rate([prompted(0.0, 3.0, 100), prompted(1.0, 2.0, 20), prompted(2.0, 4.0, 80)]) == 50
    )
    assert prompt_rate([answered(0.0, 1.0)]) is None
    assert prompt_rate([]) is None


def test_one_at_a_time_never_decodes_for_two() -> None:
    assert decode_rate([answered(0.0, 1.0, 2.0), answered(0.0, 3.0, 4.0)], 2) is None


def test_the_decode_rate_weighs_pieces_of_several_tokens() -> None:
    assert decode_rate([answered(0.0, 1.0, 2.0, 3.0, tokens=6)], 1) == pytest.approx(2.0)


def test_failed_requests_are_counted_and_leave_the_figures_alone() -> None:
    failed = RequestMetrics(0.0, 0.1, error="HTTP 503: the queue is full")
    summary = summarize([answered(0.0, 1.0, 2.0), failed], clients=1)
    assert (summary.requests, summary.errors) == (2, 1)
    assert summary.first_error == "HTTP 503: the queue is full"
    assert summary.output_tokens_per_s == 1.0
    assert summary.ttft_s is not None
    assert summary.ttft_s.p99 == 1.0


def test_a_run_that_failed_altogether_has_no_times() -> None:
    summary = summarize([RequestMetrics(0.0, 1.0, error="refused")], clients=1)
    assert (summary.output_tokens, summary.ttft_s, summary.decode_tokens_per_s) == (0, None, None)
