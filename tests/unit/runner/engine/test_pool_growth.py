"""A cache grows while sequences run, and where it may not, all goes on as in a full one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.backend import Backend, BackendError
from runner.engine.pool_growth import RETRY_S, PoolGrowth
from runner.errors import ContextOverflow
from tests.properties import examples
from tests.unit.runner.engine.runs import Run


def growing(
    limit: int,
    grant: Callable[[int], int] = lambda tokens: 2 * tokens,
    asked: list[int] | None = None,
) -> Callable[[Backend], PoolGrowth]:
    def ask(tokens: int) -> int:
        if asked is not None:
            asked.append(tokens)
        return grant(tokens)

    return lambda backend: PoolGrowth(backend, limit, ask, clock=lambda: 0.0)


def test_a_prompt_longer_than_the_cache_is_answered_in_a_larger_one() -> None:
    run = Run(pool=64, growth=growing(1024))
    run.submit("a", "x" * 200, max_tokens=3)
    run.finish()
    assert run.text("a") == "xxx"
    assert run.backend.capacity.pool_tokens == 404


def test_an_answer_goes_on_while_its_cache_grows() -> None:
    asked: list[int] = []
    run = Run(pool=64, growth=growing(1024, asked=asked))
    run.submit("a", "hello", ignore_eos=True, max_tokens=700)
    run.finish()
    assert run.end("a").usage.completion_tokens == 700
    assert run.end("a").limit == "num_predict"
    assert len(asked) < 6  # it doubles


def test_the_limit_ends_an_answer_as_a_context_does() -> None:
    run = Run(pool=64, growth=growing(256, grant=lambda tokens: 10_000))
    run.submit("a", "hello", ignore_eos=True)
    run.finish()
    assert (run.end("a").limit, run.backend.capacity.pool_tokens) == ("context", 256)
    assert run.end("a").usage.completion_tokens == 256 - 6


def test_one_answer_alone_ends_where_a_cache_that_must_not_grow_does() -> None:
    asked: list[int] = []
    run = Run(pool=64, growth=growing(1024, grant=lambda _: 64, asked=asked))
    run.submit("a", "hello", ignore_eos=True)
    run.finish()
    assert (run.end("a").reason, run.end("a").limit) == ("length", "context")
    assert run.end("a").usage.completion_tokens == 64 - 6
    assert len(asked) == 1


def test_one_answer_alone_is_shifted_where_a_cache_that_must_not_grow_ends() -> None:
    run = Run(pool=64, growth=growing(1024, grant=lambda _: 64))
    run.submit("a", "hello", ignore_eos=True, n_keep=2, max_tokens=2000)
    run.finish()
    assert run.end("a").usage.completion_tokens == 2000
    assert run.end("a").shifted_tokens > 0


def test_a_prompt_is_refused_where_the_cache_must_not_grow() -> None:
    run = Run(pool=64, growth=growing(1024, grant=lambda _: 64))
    with pytest.raises(ContextOverflow) as caught:
        run.submit("a", "x" * 200)
    assert caught.value.details == {"prompt_tokens": 201, "context_length": 64}


def test_a_request_with_a_shorter_context_lets_nothing_grow() -> None:
    asked: list[int] = []
    run = Run(pool=64, growth=growing(1024, asked=asked))
    with pytest.raises(ContextOverflow):
        run.submit("a", "x" * 200, context_length=100)
    run.submit("b", "x" * 20, context_length=40, ignore_eos=True)
    run.finish()
    assert (run.end("b").limit, asked) == ("context", [])


def test_sequences_run_together_rather_than_wait_for_each_other() -> None:
    run = Run(pool=64, growth=growing(4096))
    for id in "abcdefgh":
        run.submit(id, id * 40, max_tokens=30, ignore_eos=True)
    together = 0
    while run.engine.busy:
        run.step()
        together = max(together, run.engine.scheduler.running)
    assert (together, run.engine.scheduler.preemptions) == (8, 0)


def test_after_a_refusal_nobody_is_asked_for_a_while() -> None:
    asked: list[int] = []
    times_s = [0.0, 0.0, RETRY_S / 2, RETRY_S, RETRY_S]  # two of each try that asks

    def ask(tokens: int) -> int:
        asked.append(tokens)
        return 64

    growth = PoolGrowth(Run(pool=64).backend, 1024, ask, clock=lambda: times_s.pop(0))
    for count in (1, 1, 2):
        growth.grow(100)
        assert len(asked) == count


def test_sequences_end_with_an_error_when_the_cache_is_lost() -> None:
    def fail(_tokens: int) -> None:
        raise BackendError("no memory")

    run = Run(pool=64, growth=growing(1024))
    run.backend.grow = fail  # type: ignore[method-assign]
    run.submit("a", "hello", ignore_eos=True)
    run.finish()
    assert "no memory" in str(run.errors["a"])


@examples(30)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=8),
    grants=st.lists(st.integers(0, 700), max_size=6),
    idle=st.none() | st.integers(0, 100),
)
def test_answers_are_those_of_a_large_cache_however_it_grows(
    sizes: list[tuple[int, int]], grants: list[int], idle: int | None
) -> None:
    """grants: the answers of whoever owns the memory, in turn; then all is allowed."""
    left = list(grants)

    def grant(tokens: int) -> int:
        return left.pop() if left else 2 * tokens

    large = Run(pool=8192, idle_tokens=idle)
    small = Run(pool=640, idle_tokens=idle, growth=growing(8192, grant))
    for run in (large, small):
        for at, (prompt, answer) in enumerate(sizes):
            run.submit(str(at), chr(97 + at) * prompt, max_tokens=answer, ignore_eos=True)
        run.finish()
    for at in range(len(sizes)):
        assert small.text(str(at)) == large.text(str(at))
        assert small.end(str(at)).usage.completion_tokens == sizes[at][1]
