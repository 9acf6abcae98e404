from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.server import rate_limits as rates_module
from runner.server.rate_limits import RateLimiter, client_at


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_minutes_requests_may_come_at_once_and_then_evenly() -> None:
    clock = Clock()
    rates = RateLimiter(6, clock)
    assert [rates.take("a") for _ in range(6)] == [None] * 6
    assert rates.take("a") == pytest.approx(10.0)
    clock.now_s = 9.5
    assert rates.take("a") == pytest.approx(0.5)
    clock.now_s = 10.0
    assert rates.take("a") is None
    assert rates.take("a") == pytest.approx(10.0)


def test_clients_do_not_share() -> None:
    rates = RateLimiter(1, Clock())
    assert rates.take("a") is None
    assert rates.take("b") is None
    assert rates.take("a") is not None


def test_without_a_limit_nothing_is_counted() -> None:
    rates = RateLimiter(None, Clock())
    assert [rates.take("a") for _ in range(1000)] == [None] * 1000
    assert len(rates) == 0


def test_memory_is_bounded_and_busy_clients_stay_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_module, "MAX_CLIENTS", 8)
    rates = RateLimiter(2, Clock())
    for number in range(100):
        rates.take(f"client {number}")
        if number < 2:
            rates.take("busy")
    assert len(rates) == 8
    rates = RateLimiter(2, Clock())
    assert [rates.take("busy") for _ in range(3)][:2] == [None, None]
    for number in range(7):
        rates.take(f"client {number}")
    assert rates.take("busy") is not None


@given(st.integers(1, 120), st.lists(st.floats(0, 30, allow_nan=False), min_size=1, max_size=200))
def test_no_minute_has_more_than_twice_the_limit_and_waiting_as_told_is_enough(
    limit: int, pauses: list[float]
) -> None:
    """Twice: a full bucket at the beginning of the minute, and what flows in during it."""
    clock = Clock()
    rates = RateLimiter(limit, clock)
    allowed: list[float] = []
    for pause in pauses:
        clock.now_s += pause
        wait_s = rates.take("a")
        if wait_s is None:
            allowed.append(clock.now_s)
        else:
            clock.now_s += wait_s
            assert rates.take("a") is None
            allowed.append(clock.now_s)
    for start in allowed:
        assert sum(start <= at < start + 59.999 for at in allowed) <= 2 * limit


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_addresses_of_one_network_are_one_client(address: str, client: str) -> None:
    assert client_at(address) == client
