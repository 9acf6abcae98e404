"""Prompts of a chosen length."""

from __future__ import annotations

import dataclasses

import pytest

from cli.bench.workload import TokenScale, Workload, body, fit_scale, messages, text

WORK = Workload(clients=2, requests=4, prompt_tokens=50, shared_tokens=20, seed="s")


def test_two_counts_give_overhead_and_price_of_a_word() -> None:
    assert fit_scale(8, 21, 72, 149) == TokenScale(tokens_per_word=2.0, overhead=5.0)


def test_a_server_that_counts_all_prompts_alike_is_refused() -> None:
    with pytest.raises(ValueError, match="72"):
        fit_scale(8, 10, 72, 10)


def test_the_system_prompt_is_shared_and_the_question_is_not() -> None:
    first, second = (messages(WORK, index, TokenScale()) for index in (0, 1))
    assert first[0] == second[0]
    assert first[0]["role"] == "system"
    assert first[1] != second[1]


def test_prompts_have_the_length_that_the_scale_says() -> None:
    system, user = messages(WORK, 0, TokenScale(tokens_per_word=2.0, overhead=10.0))
    assert len(system["content"].split()) == 10
    assert len(user["content"].split()) == 20


def test_prompts_repeat_with_the_seed_and_differ_with_another() -> None:
    other = dataclasses.replace(WORK, seed="t")
    assert messages(WORK, 1, TokenScale()) == messages(WORK, 1, TokenScale())
    assert messages(WORK, 1, TokenScale()) != messages(other, 1, TokenScale())


def test_a_prompt_shorter_than_the_template_is_still_one_word() -> None:
    assert len(text("x", TokenScale(overhead=10.0).words(-9)).split()) == 1


def test_requests_ask_for_a_fixed_number_of_greedy_tokens() -> None:
    asked = body("ember", messages(WORK, 0, TokenScale()), 48)
    assert (asked["max_tokens"], asked["temperature"], asked["ignore_eos"]) == (48, 0, True)
    assert asked["stream_options"] == {"include_usage": True}
