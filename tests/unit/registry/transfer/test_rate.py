from __future__ import annotations

import asyncio

import pytest

from registry.transfer.rate import MAX_FAULTS, Backoff, RateLimit, Streams


def test_waits_double_with_jitter_and_end() -> None:
    low = [Backoff(random_unit=lambda: 0.0)][0]
    high = Backoff(random_unit=lambda: 1.0)
    waits = [(low.failed(0.0, None), high.failed(0.0, None)) for _ in range(MAX_FAULTS + 1)]
    assert waits[-1] == (None, None)
    assert waits[0] == (0.25, 0.5)
    assert waits[3] == (2.0, 4.0)
    assert all(pair[1] <= 30 for pair in waits[:-1] if pair[1] is not None)


def test_progress_makes_the_next_fault_the_first_one() -> None:
    backoff = Backoff(random_unit=lambda: 1.0)
    for _ in range(100):
        assert backoff.failed(0.0, None) == 0.5
        backoff.progressed()


def test_a_server_that_asks_for_time_gets_it_from_all_streams() -> None:
    backoff = Backoff(scale=0.0)
    assert backoff.failed(100.0, 7.0) == 7.0
    assert backoff.hold_s(103.0) == 4.0
    assert backoff.hold_s(110.0) == 0.0


def test_streams_grow_while_that_makes_it_faster_and_then_stay() -> None:
    streams = Streams(max_streams=8)
    for rate in (10.0, 15.0, 20.0):
        streams.measured(rate)
    grown = streams.wanted
    streams.measured(20.5)
    assert streams.wanted == grown - 1
    streams.measured(100.0)
    assert streams.wanted == grown - 1


def test_streams_never_exceed_the_most_nor_fall_below_one() -> None:
    streams = Streams(max_streams=3)
    for rate in range(1, 50):
        streams.measured(2.0**rate)
    assert streams.wanted == 3
    for _ in range(10):
        streams.refused()
    assert streams.wanted == 1
    assert Streams(max_streams=1).wanted == 1


async def test_a_limit_spreads_the_bytes_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slept = 0.0, 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s, slept
        now_s, slept = now_s + seconds, slept + seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    limit = RateLimit(1000, clock=lambda: now_s)
    for _ in range(50):
        await limit.take(100)
    assert slept == pytest.approx(4.9, abs=0.2)
    assert limit.set
    assert not RateLimit(None).set
    await RateLimit(None).take(10**12)
