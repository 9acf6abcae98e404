"""An answer that goes on beyond its context, and which tokens leave it for that."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engine.context_shift import MAX_CONTEXTS, ContextShift, context_shift
from tests.unit.runner.engine.runs import Run, encode

CONTEXT = 16
PROMPT = encode("hello")


def answered(**options: object) -> Run:
    run = Run(context=CONTEXT)
    run.submit("a", "hello", ignore_eos=True, return_tokens=True, **options)
    return run.finish()


def test_a_full_context_loses_its_oldest_tokens_and_the_answer_goes_on() -> None:
    run = answered(n_keep=3, max_tokens=50)
    finish = run.end("a")
    assert (finish.reason, finish.usage.completion_tokens) == ("length", 50)
    assert finish.usage.prompt_tokens == len(PROMPT)
    assert finish.shifted_tokens > 0
    assert len(finish.tokens) == len(PROMPT) + 50 - finish.shifted_tokens <= CONTEXT
    assert list(finish.tokens[:3]) == PROMPT[:3]


def test_no_batch_ever_holds_more_than_the_context() -> None:
    run = answered(n_keep=3, max_tokens=50)
    assert max(size for batch in run.backend.batches for _, size in batch) < CONTEXT
    assert not run.errors


@pytest.mark.parametrize("options", [{}, {"n_keep": 3, "max_tokens": 4}])
def test_without_a_wish_or_a_need_nothing_leaves(options: dict[str, int]) -> None:
    finish = answered(**options).end("a")
    assert finish.shifted_tokens == 0
    assert list(finish.tokens[: len(PROMPT)]) == PROMPT


@pytest.mark.parametrize(
    ("context", "expected"), [(4096, 40_960), (8192, 65_536), (32_768, 65_536), (131_072, 131_072)]
)
def test_a_long_context_makes_no_answer_endless(context: int, expected: int) -> None:
    shift = context_shift(0, 5, context, None)
    assert shift is not None
    assert shift.max_tokens == 5 + expected


def test_an_answer_without_a_limit_ends_after_some_contexts() -> None:
    finish = answered(n_keep=0).end("a")
    assert finish.usage.completion_tokens == MAX_CONTEXTS * CONTEXT
    assert finish.limit == "generation"


def test_an_end_token_ends_a_shifted_answer() -> None:
    run = Run(context=12)
    run.submit("a", "hello", n_keep=0, max_tokens=200)
    assert run.finish().end("a").reason == "stop"


def test_a_shift_changes_nothing_for_others() -> None:
    alone = Run(context=CONTEXT)
    alone.submit("b", "other", ignore_eos=True, max_tokens=9)
    run = Run(context=CONTEXT)
    run.submit("a", "hello", ignore_eos=True, n_keep=2, max_tokens=60)
    run.submit("b", "other", ignore_eos=True, max_tokens=9)
    assert run.finish().text("b") == alone.finish().text("b")


def test_minus_one_keeps_the_prompt_but_never_more_than_half_the_context() -> None:
    assert context_shift(-1, 6, CONTEXT, 50) == ContextShift(6, CONTEXT, 56)
    assert context_shift(-1, 12, CONTEXT, 50) == ContextShift(CONTEXT // 2, CONTEXT, 62)
    assert context_shift(4, 6, CONTEXT, 10) is None


@given(st.integers(0, 40), st.integers(2, 40), st.integers(1, 500))
def test_each_shift_makes_room_keeps_the_beginning_and_counts_what_left(
    keep: int, context: int, wanted: int
) -> None:
    prompt = array("i", range(context - 1))
    shift = context_shift(keep, len(prompt), context, wanted)
    tokens, produced = prompt, 0
    while shift is not None and shift.allows(tokens):
        if len(tokens) >= context:
            tokens, limit = shift.shortened(tokens)
            assert len(tokens) < limit <= context
            assert tokens[: shift.keep] == prompt[: shift.keep]
        tokens = tokens + array("i", [context + produced])
        produced += 1
        assert len(tokens) + shift.shifted == len(prompt) + produced
    assert shift is None or produced == wanted
