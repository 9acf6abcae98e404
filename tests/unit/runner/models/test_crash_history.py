from __future__ import annotations

from runner.models.crash_history import MAX_CRASHES, WINDOW_S, CrashHistory


def test_without_crashes_a_start_is_allowed_at_once() -> None:
    history = CrashHistory()
    assert history.blocked_s(0.0) is None
    assert history.backoff_s(0.0) == 0.0


def test_the_wait_grows_with_the_crashes() -> None:
    history = CrashHistory()
    waits = []
    for number in range(MAX_CRASHES - 1):
        history.record(float(number))
        waits.append(history.backoff_s(float(number)))
    assert waits == sorted(waits)
    assert waits[-1] > 0


def test_too_many_crashes_block_until_the_first_is_out_of_the_window() -> None:
    history = CrashHistory()
    for number in range(MAX_CRASHES):
        history.record(10.0 * number)
    assert history.blocked_s(30.0) == WINDOW_S - 30.0
    assert history.blocked_s(WINDOW_S + 0.1) is None


def test_old_crashes_are_forgotten() -> None:
    history = CrashHistory()
    for number in range(10):
        history.record(number * WINDOW_S)
    assert history.recent(9 * WINDOW_S) == 1
