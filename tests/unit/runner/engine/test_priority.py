"""Requests of different priorities in one engine."""

from __future__ import annotations

from runner.types import GenerateRequest, SamplingParams
from tests.unit.runner.engine.runs import Run


def test_a_lower_priority_number_goes_first() -> None:
    run = Run(max_running=1)
    run.submit("a", "aa")
    run.submit("late", "bb", priority=5)
    run.submit("soon", "cc", priority=-1)
    run.finish()
    assert run.first == ["soon", "a", "late"]


def test_a_more_urgent_request_takes_the_place_of_a_running_one_and_changes_no_answer() -> None:
    alone, both = Run(max_running=1), Run(max_running=1)
    for run in (alone, both):
        sampling = SamplingParams(temperature=1, seed=1)
        run.submit("batch", "aaaa", sampling=sampling, ignore_eos=True, max_tokens=40, priority=9)
        for _ in range(5):
            run.step()
        if run is both:
            run.submit("live", "bb")
        run.finish()
    assert both.ended == ["live", "batch"]
    assert both.engine.scheduler.preemptions == 1
    assert both.text("batch") == alone.text("batch")
    assert both.end("batch").usage.completion_tokens == 40
    # What it had computed is not computed again.
    computed = [sum(count for _, count in each) for each in both.backend.batches]
    assert max(computed[5:]) <= 4


def test_an_equally_urgent_request_takes_no_place() -> None:
    run = Run(max_running=1)
    run.submit("a", "aaaa", ignore_eos=True, max_tokens=20, priority=9)
    run.step()
    run.submit("b", "bb", priority=9)
    run.finish()
    assert run.engine.scheduler.preemptions == 0
    assert run.first == ["a", "b"]


def test_a_more_urgent_request_takes_the_cells_of_running_ones() -> None:
    run = Run(pool=100)
    for id in ("x", "y"):
        run.submit(id, id * 20, ignore_eos=True, max_tokens=15, priority=9)
        run.step()
    run.submit("live", "z" * 40, max_tokens=4)
    run.finish()
    assert run.ended[0] == "live"
    assert (run.text("x"), run.text("y")) == ("x" * 15, "y" * 15)


def test_a_long_prompt_of_a_batch_does_not_hold_up_a_live_one() -> None:
    run = Run(batch=64, context=4096, pool=8192)
    run.submit("batch", "x" * 3000, max_tokens=1, priority=9)
    run.step()
    run.submit("live", "hello", max_tokens=1)
    run.step()
    assert run.first == ["live"]


def test_embeddings_of_a_lower_priority_number_go_first() -> None:
    run = Run(batch=32)
    long = [[i] * 30 for i in range(4)]
    for id, inputs, priority in (("batch", long, 9), ("late", [[1]], 9), ("live", [[2]], 0)):
        run.engine.embed(GenerateRequest(id, priority=priority), inputs, truncate=True)
        if id == "batch":
            run.engine.step()  # one of its four inputs is done
    told: list[str] = []
    while run.engine.busy:
        told += [id for id, _ in run.engine.step().embeddings]
    assert told == ["live", "batch", "late"]
