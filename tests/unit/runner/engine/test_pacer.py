from __future__ import annotations

import pytest

from runner.engine.pacer import (
    ALONE_STEP_S,
    ENOUGH_PREFILL_TOKENS,
    FIRST_CHUNK_TOKENS,
    MAX_STEP_S,
    MIN_CHUNK_TOKENS,
    Pacer,
)


def measured(decode_s: float, token_s: float) -> Pacer:
    pacer = Pacer()
    for _ in range(50):
        pacer.observe(decode_s, 4, 0)
        pacer.observe(decode_s + token_s * 64, 4, 64)
    return pacer


def test_without_anybody_decoding_the_whole_budget_is_for_prompts() -> None:
    assert measured(0.05, 0.01).prefill_budget(512, 0) == 512


@pytest.mark.parametrize(("token_s", "tokens"), [(0.05, 200), (0.1, 100), (3.0, MIN_CHUNK_TOKENS)])
def test_no_step_is_longer_than_its_time_where_tokens_are_slow(token_s: float, tokens: int) -> None:
    budget = measured(0.05, token_s).prefill_budget(512, 0)
    assert budget == pytest.approx(tokens, rel=0.02)
    assert budget == MIN_CHUNK_TOKENS or budget * token_s == pytest.approx(ALONE_STEP_S, rel=0.02)


def test_a_short_limit_of_steps_makes_them_shorter() -> None:
    pacer = measured(0.05, 0.01)
    pacer.alone_s = 2.0
    assert pacer.prefill_budget(512, 0) == pytest.approx(200, rel=0.02)


def test_before_any_measurement_a_small_chunk_is_tried() -> None:
    assert Pacer().prefill_budget(512, 1) == MIN_CHUNK_TOKENS
    assert Pacer().prefill_budget(512, 0) == FIRST_CHUNK_TOKENS


@pytest.mark.parametrize(("decode_s", "token_s"), [(0.03, 0.001), (0.2, 0.002), (0.001, 0.0005)])
def test_a_mixed_step_takes_twice_a_decode_step_or_the_longest_time(
    decode_s: float, token_s: float
) -> None:
    pacer = measured(decode_s, token_s)
    assert pacer.decode_s == pytest.approx(decode_s, rel=0.01)
    assert pacer.prefill_token_s == pytest.approx(token_s, rel=0.05)
    budget = pacer.prefill_budget(10_000, 4)
    assert decode_s + budget * token_s == pytest.approx(max(2 * decode_s, MAX_STEP_S), rel=0.1)


def test_a_slow_machine_still_gets_a_chunk() -> None:
    assert measured(0.1, 0.1).prefill_budget(512, 4) == MIN_CHUNK_TOKENS


def test_no_more_than_the_batch_has_room_for() -> None:
    assert measured(0.05, 1e-6).prefill_budget(500, 12) == 500
    assert measured(0.1, 0.1).prefill_budget(7, 4) == 7


def test_estimates_follow_a_change_of_speed() -> None:
    pacer = measured(0.05, 0.0001)
    for _ in range(40):
        pacer.observe(0.1, 4, 0)
        pacer.observe(0.1 + 64 * 0.002, 4, 64)
    assert pacer.decode_s == pytest.approx(0.1, rel=0.01)
    assert pacer.prefill_token_s == pytest.approx(0.002, rel=0.1)


def test_a_tiny_prompt_changes_the_estimate_little() -> None:
    pacer = measured(0.05, 0.001)
    pacer.observe(0.05, 0, 2)
    assert pacer.prefill_token_s == pytest.approx(0.001, rel=0.2)


def test_what_makes_a_step_worth_its_time_follows_the_speed_of_the_machine() -> None:
    assert Pacer().enough_prefill() == ENOUGH_PREFILL_TOKENS
    assert measured(0.05, 0.1).enough_prefill() == ENOUGH_PREFILL_TOKENS
    assert measured(0.05, 0.0001).enough_prefill() == pytest.approx(MAX_STEP_S / 0.0001, rel=0.05)
