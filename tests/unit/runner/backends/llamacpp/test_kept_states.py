"""Recurrent states are kept at the end of a prompt, so that a conversation is computed once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from runner.backends.backend import LoadedBackend
from runner.engine.engine import Engine
from runner.engine.scheduler import STATE_END_TOKENS, STATE_TOKENS
from runner.types import Finish, GenerateRequest, SamplingParams

TOKENS = [1, *Random(3).choices(range(5, 250), k=900)]
GREEDY = SamplingParams(temperature=0)

Open = Callable[..., LoadedBackend]
Answer = tuple[tuple[int, ...], int]


def engine(open_model: Open, architecture: str, swap_bytes: int = 0) -> Engine:
    loaded = open_model({"architecture": architecture}, pool_tokens=4096, context_length=1024)
    idle_tokens = 64 if swap_bytes else None
    return Engine(loaded.backend, loaded.tokenizer, idle_tokens=idle_tokens, swap_bytes=swap_bytes)


def ask(engine: Engine, tokens: list[int], answer_tokens: int = 12, salt: str = "") -> Answer:
    """The tokens of an answer, and how many of the prompt were not computed."""
    request = GenerateRequest(
        "a", GREEDY, max_tokens=answer_tokens, ignore_eos=True, return_tokens=True, cache_salt=salt
    )
    engine.submit(request, tokens)
    finish: Finish | None = None
    while engine.busy:
        output = engine.step()
        assert not output.errors
        finish = next((delta.finish for _, delta in output.deltas if delta.finish), finish)
    assert finish is not None
    return finish.tokens[len(tokens) :], finish.usage.cached_tokens


@pytest.mark.parametrize("swap_bytes", [0, 1 << 30])
@pytest.mark.parametrize("architecture", ["mamba", "jamba", "lfm2"])
def test_later_turns_go_on_from_the_prompt_before_though_its_answer_is_written_otherwise(
    open_model: Open, architecture: str, swap_bytes: int
) -> None:
    running = engine(open_model, architecture, swap_bytes)
    for turn, size in enumerate((400, 600, 880)):
        prompt = [*TOKENS[: size - 10], *(7 + turn for _ in range(10))]
        answer, cached = ask(running, prompt)
        before = (0, 400, 400)[turn]  # the second prompt has too little that is new
        assert cached == (before - STATE_END_TOKENS if before else 0)
        assert answer == ask(engine(open_model, architecture), prompt)[0]
    again, cached = ask(running, prompt)
    assert (again, cached) == (answer, 880 - STATE_END_TOKENS)


def test_short_prompts_and_those_of_others_are_computed(open_model: Open) -> None:
    running = engine(open_model, "mamba")
    short = TOKENS[: STATE_TOKENS + STATE_END_TOKENS - 1]
    for tokens, salt, expected in (
        (short, "", 0),
        (short, "", 0),
        ([*short, 9], "", 0),
        ([*short, 8], "", len(short) + 1 - STATE_END_TOKENS),
        ([*short, 8], "other", 0),
    ):
        assert ask(running, tokens, salt=salt)[1] == expected


def test_states_leave_when_ids_are_short(open_model: Open) -> None:
    running = engine(open_model, "lfm2")
    for number in range(24):  # there are 16 ids
        ask(running, [1, number + 5, *TOKENS[:300]], 2)
    assert ask(running, [1, 28, *TOKENS[:280], *TOKENS[400:420]], 2)[1] == 0
    assert ask(running, [1, 28, *TOKENS[:300]], 2)[1] == 302 - STATE_END_TOKENS


@pytest.mark.parametrize("swap_bytes", [0, 1 << 30])
@pytest.mark.parametrize("architecture", ["mamba", "jamba", "lfm2"])
def test_a_second_turn_computes_only_what_is_new(
    open_model: Open, architecture: str, swap_bytes: int
) -> None:
    running = engine(open_model, architecture, swap_bytes)
    answer, _ = ask(running, TOKENS[:600], 40)
    said = [*TOKENS[:600], *answer]
    ask(running, TOKENS[100:500])
    second, cached = ask(running, [*said, 7, 8, 9])
    assert cached == len(said) - 1, "the last token of an answer is not computed"
    assert second == ask(engine(open_model, architecture), [*said, 7, 8, 9])[0]


@pytest.mark.parametrize("swap_bytes", [0, 1 << 30])
@pytest.mark.parametrize("architecture", ["mamba", "jamba", "lfm2"])
def test_prompts_share_what_the_second_of_them_shows_to_be_common(
    open_model: Open, architecture: str, swap_bytes: int
) -> None:
    running = engine(open_model, architecture, swap_bytes)
    prompts = [[*TOKENS[:500], *(10 + number for _ in range(300))] for number in range(4)]
    found = [ask(running, prompt) for prompt in prompts]
    assert [cached for _, cached in found] == [0, 0, 500, 500]
    assert found[3][0] == ask(engine(open_model, architecture), prompts[3])[0]
