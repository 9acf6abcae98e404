"""Requests that give up their place because nobody reads their answers."""

from __future__ import annotations

from runner.backends.backend import BackendError
from runner.types import SamplingParams
from tests.unit.runner.engine.runs import Run


def test_a_paused_request_leaves_its_place_to_the_next_and_changes_no_answer() -> None:
    alone, paused = Run(max_running=1), Run(max_running=1)
    for run in (alone, paused):
        sampling = SamplingParams(temperature=1, seed=1)
        run.submit("unread", "aaaa", sampling=sampling, ignore_eos=True, max_tokens=40)
        for _ in range(5):
            run.step()
        if run is paused:
            run.engine.pause("unread")
            run.engine.pause("unread")
            run.submit("next", "bb")
            run.finish()
            assert run.ended == ["next"]
            assert run.engine.paused == 1
            run.engine.resume("unread")
            run.engine.resume("unread")
        run.finish()
    assert paused.ended == ["next", "unread"]
    assert paused.text("unread") == alone.text("unread")
    assert paused.end("unread").usage.completion_tokens == 40
    # What it had computed is not computed again.
    computed = [sum(count for _, count in each) for each in paused.backend.batches]
    assert max(computed[5:]) <= 4


def test_a_request_in_the_queue_can_be_paused() -> None:
    run = Run(max_running=1)
    run.submit("a", "aa")
    run.submit("b", "bb")
    run.step()
    run.engine.pause("b")
    assert run.finish().ended == ["a"]
    run.engine.resume("b")
    assert run.finish().ended == ["a", "b"]


def test_an_engine_with_paused_requests_only_has_nothing_to_do() -> None:
    run = Run()
    run.submit("a", "a" * 50)
    run.step()
    run.engine.pause("a")
    assert not run.engine.busy


def test_a_paused_request_can_be_cancelled() -> None:
    run = Run()
    run.submit("a", "a" * 50)
    run.step()
    run.engine.pause("a")
    assert run.engine.cancel("a")
    run.engine.resume("a")
    assert not run.engine.busy
    assert run.engine.paused == 0


def test_requests_that_have_ended_are_neither_paused_nor_resumed() -> None:
    run = Run()
    run.submit("a", "a")
    run.finish()
    run.engine.pause("a")
    run.engine.resume("a")
    assert run.engine.paused == 0


def test_a_failed_step_leaves_paused_requests_alone() -> None:
    run = Run()
    for id in ("a", "b"):
        run.submit(id, id * 50)
    run.step()
    run.engine.pause("a")
    run.backend.faults = [BackendError("broken")]
    run.finish()
    assert set(run.errors) == {"b"}
    run.engine.resume("a")
    assert run.finish().text("a") == "a" * 50
