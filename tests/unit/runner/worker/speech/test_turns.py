from __future__ import annotations

import threading

import pytest

from runner.worker.speech.turns import Cancelled, Job, Turns

WAIT_S = 30.0


def work(turns: Turns, job: Job, order: list[str]) -> threading.Thread:
    """A thread that makes a call for job, noted in order."""

    def run() -> None:
        turns.begin(job)
        turns.run(order.append, job.id)
        turns.end(job)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_call_gives_its_result_and_is_counted() -> None:
    stepped = []
    turns = Turns(lambda: stepped.append(turns.step_age_s))
    turns.begin(Job("a", "ann"))
    assert turns.run(lambda number: number + 1, 41) == 42
    with pytest.raises(ZeroDivisionError):
        turns.run(lambda: 1 // 0)
    assert (turns.calls, stepped, turns.step_age_s) == (2, [None, None], None)


def test_who_had_much_of_the_model_lets_others_go_first() -> None:
    turns, order = Turns(lambda: None), list[str]()
    begun, released = threading.Event(), threading.Event()

    def first() -> None:
        job = Job("long", "ann")
        turns.begin(job)
        turns.run(lambda: (begun.set(), released.wait(WAIT_S)))
        for _ in range(3):
            turns.run(order.append, "long")
        turns.end(job)

    threading.Thread(target=first, daemon=True).start()
    assert begun.wait(WAIT_S)
    turns._share.charge("ann", 100_000)
    others = [work(turns, Job(name, name), order) for name in ("bob", "cy")]
    while len(turns._waiting) < 2:
        others[0].join(0.001)
    released.set()
    for thread in others:
        thread.join(WAIT_S)
    assert set(order[:2]) == {"bob", "cy"}


def test_a_cancelled_job_ends_before_its_next_call() -> None:
    turns, job = Turns(lambda: None), Job("a", "ann")
    turns.begin(job)
    turns.cancel(job)
    with pytest.raises(Cancelled):
        turns.run(lambda: pytest.fail("it was called"))
    turns.end(job)
    assert turns.calls == 0
