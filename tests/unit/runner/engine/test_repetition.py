"""The end of an answer that only repeats itself."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.backend import SampledToken
from runner.engine.context_shift import MAX_CONTEXTS, ContextShift
from runner.engine.detokenize import TokenTexts
from runner.engine.repetition import CHECK_TOKENS, MAX_PERIOD, MIN_COUNT, repeats
from runner.engine.sequence import Sequence
from runner.types import Finish, GenerateRequest, SamplingParams
from tests.fake_backend import FakeTokenizer
from tests.unit.runner.engine.runs import Run

LIMIT = 1024


def tokens(*groups: list[int]) -> array[int]:
    return array("i", [token for group in groups for token in group])


@pytest.mark.parametrize("period", [1, 2, 3, 7, 50, 128])
def test_a_run_that_is_repeated_for_the_limit_is_found_and_one_token_less_is_not(
    period: int,
) -> None:
    run = [7 + token // 2 for token in range(period)]  # most tokens twice in a run
    looping = tokens([1, 2, 3], run * LIMIT)[: LIMIT + 3]
    assert repeats(looping, LIMIT)
    assert not repeats(looping[1:-1] if period == 1 else looping[4:], LIMIT)


def test_a_long_run_must_be_repeated_often_enough() -> None:
    run = list(range(MAX_PERIOD))
    assert repeats(tokens(run * MIN_COUNT), LIMIT)
    assert not repeats(tokens(run * MIN_COUNT)[1:], LIMIT)
    longer = list(range(MAX_PERIOD + 1))
    assert not repeats(tokens(longer * 20), LIMIT)


def test_one_token_that_differs_is_no_repetition() -> None:
    rows = [[5, 6, row, 8, 9] for row in range(100, 500)]  # a table with a number in each row
    assert not repeats(tokens(*rows), LIMIT)
    zeros = [30, 11, 32] * 340
    assert not repeats(tokens(zeros, [99]), LIMIT)
    assert not repeats(tokens([99], zeros), LIMIT)
    assert repeats(tokens([99], zeros, zeros), LIMIT)


@given(
    st.lists(st.integers(0, 3), max_size=12),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.integers(1, 30),
    st.integers(1, 40),
)
def test_what_is_found_is_what_the_rule_says(
    head: list[int], run: list[int], count: int, limit: int
) -> None:
    text = head + run * count
    expected = any(
        len(text) >= (span := max(limit, MIN_COUNT * period))
        and all(text[at] == text[at - period] for at in range(len(text) - span + period, len(text)))
        for period in range(1, len(text))
    )
    assert repeats(tokens(text), limit) == expected


def answer(text: str, **options: object) -> Finish:
    run = Run(context=9000, pool=9000, batch=9000)
    run.submit("a", text, **options)
    return run.finish().end("a")


def test_an_answer_in_a_loop_ends_soon_after_the_limit() -> None:
    finish = answer("begin " + "round and " * 400)
    assert (finish.reason, finish.limit) == ("length", "repetition")
    assert 0 <= finish.usage.completion_tokens - len("begin ") - LIMIT <= CHECK_TOKENS


def test_the_limit_is_the_requests_and_zero_or_ignoring_the_end_switches_it_off() -> None:
    text = "round and " * 400
    short = answer(text, sampling=SamplingParams(repeat_limit=200))
    assert short.limit == "repetition"
    assert short.usage.completion_tokens <= 200 + CHECK_TOKENS
    assert answer(text, sampling=SamplingParams(repeat_limit=0)).reason == "stop"
    assert answer(text, ignore_eos=True, max_tokens=4100).limit == "num_predict"


def test_what_the_prompt_repeats_is_not_the_answers() -> None:
    finish = answer("ab" * 500)  # and the answer says it once more
    assert finish.reason == "stop"
    assert finish.usage.prompt_tokens > LIMIT - 100


def test_a_loop_is_found_after_tokens_have_left_the_context() -> None:
    context, prompt = 1600, [97] * 1400
    sequence = Sequence(GenerateRequest(), prompt, context, 0, 0.0, TokenTexts(FakeTokenizer()))
    sequence.shift = ContextShift(keep=4, context=context, max_tokens=context * MAX_CONTEXTS)
    for _ in range(2 * LIMIT):
        finish = sequence.push(SampledToken(0, 97), 0.0).finish  # as in the prompt
        if finish is not None:
            break
        if sequence.full:
            sequence.shift_context()
    assert finish is not None
    assert finish.limit == "repetition"
    assert finish.shifted_tokens > 0
    assert finish.usage.completion_tokens >= LIMIT
