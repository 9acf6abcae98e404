"""The measures of one request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.bench.request_metrics import request_metrics
from cli.bench.timed_response import TimedResponse


def stream(*timed: tuple[float, dict[str, Any]]) -> TimedResponse:
    """A recorded answer with one event at each time."""
    pieces = [(when, f"data: {json.dumps(event)}\n\n".encode()) for when, event in timed]
    return TimedResponse(0.0, pieces, pieces[-1][0])


def piece(text: str) -> dict[str, Any]:
    """An event with text."""
    return {"choices": [{"delta": {"content": text}}]}


ROLE = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}


def test_the_first_text_counts_not_the_first_event() -> None:
    one = request_metrics(
        stream((1.0, ROLE), (3.0, piece("a")), (4.0, piece("b")), (5.0, piece("c")))
    )
    assert one.error is None
    assert one.ttft_s == 3.0
    assert one.tpot_s == 1.0
    assert one.output_tokens == 3


def test_usage_of_the_server_wins_over_counted_pieces() -> None:
    usage = {
        "prompt_tokens": 40,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 32},
    }
    last = {"choices": [], "usage": usage}
    one = request_metrics(stream((1.0, piece("ab")), (3.0, piece("cde")), (3.0, last)))
    assert (one.prompt_tokens, one.cached_tokens, one.output_tokens) == (40, 32, 5)
    assert one.tpot_s == 0.5


def test_text_completions_and_reasoning_are_text_too() -> None:
    reasoning = {"choices": [{"delta": {"reasoning_content": "hm"}}]}
    completion = {"choices": [{"text": "a"}]}
    assert request_metrics(stream((1.0, reasoning), (2.0, completion))).text_times_s == (1.0, 2.0)


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    assert request_metrics(stream((1.0, piece("a")))).tpot_s is None


@pytest.mark.parametrize(
    ("exchange", "reason"),
    [
        (stream((1.0, {"error": {"message": "the worker died"}})), "the worker died"),
        (stream((1.0, piece("a")), (2.0, {"error": "lost"})), "lost"),
        (stream((1.0, ROLE)), "no text"),
        (TimedResponse(0.0, [], 1.0, "the queue is full"), "the queue is full"),
        (TimedResponse(0.0, [(1.0, b"data: {\n")], 1.0), "not JSON"),
    ],
)
def test_failed_requests_carry_the_reason(exchange: TimedResponse, reason: str) -> None:
    error = request_metrics(exchange).error
    assert error is not None
    assert reason in error
