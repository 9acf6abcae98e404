"""What is proposed, and when proposing pays."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Items

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.backend import Capacity
from runner.engine.detokenize import TokenTexts
from runner.engine.engine import Engine
from runner.engine.running_sequence import RunningSequence
from runner.engine.sequence import Sequence
from runner.engine.speculation import (
    LOOKUP_TOKENS,
    REMEASURE_STEPS,
    DraftModel,
    DraftTimings,
    PromptLookup,
    Speculation,
    prompt_lookup,
)
from runner.types import GenerateRequest, SamplingParams
from tests.fake_backend import VOCABULARY, FakeBackend, FakeTokenizer


@pytest.mark.parametrize(
    ("tokens", "most", "expected"),
    [
        ([1, 2, 3, 4, 5, 1, 2, 3], 2, [4, 5]),
        ([1, 2, 3, 4, 5, 1, 2, 3], 9, [4, 5, 1, 2, 3]),
        ([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], 1, [8]),  # the last time counts
        ([7, 7, 7, 7], 3, [7]),
        ([1, 2, 3, 4], 3, []),
        ([1, 2], 3, []),
        ([], 3, []),
        ([1, 2, 3, 4, 1, 2, 3], 0, []),
        ([256, 1, 65536, 256, 1 << 24, 256], 3, []),  # bytes that only look alike between tokens
    ],
)
def test_what_followed_the_last_tokens_before(
    tokens: list[int], most: int, expected: list[int]
) -> None:
    assert prompt_lookup(array("i", tokens), most) == expected


@given(st.lists(st.sampled_from([0, 1, 256, 65_536]), max_size=40), st.integers(1, 5))
def test_the_lookup_agrees_with_a_search_token_by_token(tokens: list[int], most: int) -> None:
    tail = tokens[-LOOKUP_TOKENS:]
    expected: list[int] = []
    if len(tail) == LOOKUP_TOKENS:
        for start in range(len(tokens) - LOOKUP_TOKENS - 1, -1, -1):
            if tokens[start : start + LOOKUP_TOKENS] == tail:
                expected = tokens[start + LOOKUP_TOKENS :][:most]
                break
    assert prompt_lookup(array("i", tokens), most) == expected


def test_the_faster_way_is_taken_and_the_slower_one_looked_at_again() -> None:
    worth = DraftTimings()
    assert worth.drafting(2)
    worth.measured(2, True, 0.02)
    assert not worth.drafting(2)
    worth.measured(2, False, 0.01)
    chosen = [worth.drafting(2) for _ in range(2 * REMEASURE_STEPS)]
    assert chosen.count(True) == 2
    assert worth.drafting(3)  # another size is another matter
    for _ in range(50):
        worth.measured(2, True, 0.005)
    assert [worth.drafting(2) for _ in range(10)] == [True] * 10


def backend(pool: int = 500, context: int = 140, batch: int = 64) -> FakeBackend:
    capacity = Capacity(pool, 4, context, batch, VOCABULARY, 1, True, draft_tokens=batch)
    return FakeBackend(capacity)


def answer(drafter: DraftModel | PromptLookup | None, tokens: Items[int]) -> tuple[str, int]:
    """The answer and the number of steps."""
    own = backend()
    speculation = None if drafter is None else Speculation(drafter, 4)
    engine = Engine(own, FakeTokenizer(), speculation=speculation, clock=lambda: float(own.steps))
    params = SamplingParams(temperature=0.0)
    engine.submit(GenerateRequest("r", params, max_tokens=30), tokens)
    text = ""
    while engine.busy:
        outcome = engine.step()
        assert not outcome.errors
        text += "".join(delta.text for _, delta in outcome.deltas)
    return text, own.steps


def test_a_draft_model_that_is_right_saves_steps() -> None:
    prompt = list(b"abcdefghijklmnopqrstuvwxyz0123456789")
    plain, steps = answer(None, prompt)
    drafted, fewer = answer(DraftModel(Hasty(backend().capacity)), prompt)
    assert plain == drafted
    assert steps == 30
    assert fewer < 12


class Hasty(FakeBackend):
    """Says what the large model will say: the next letter of the alphabet of the prompt."""

    def step(self, rows):  # type: ignore[no-untyped-def]
        results = super().step(rows)
        order = b"abcdefghijklmnopqrstuvwxyz0123456789"
        for at, one in enumerate(results):
            last = self.tokens(one.sequence)[-1]
            following = order[(order.index(last) + 1) % len(order)]
            results[at] = type(one)(one.sequence, following)
        return results


def test_a_repeated_answer_is_found_in_the_past() -> None:
    prompt = list(b"over and over and over and over and over and ")
    plain, steps = answer(None, prompt)
    drafted, fewer = answer(PromptLookup(), prompt)
    assert plain == drafted
    assert fewer < steps


def running(id: str, slot: int, tokens: Items[int]) -> RunningSequence:
    request, texts = GenerateRequest(id, max_tokens=50), TokenTexts(FakeTokenizer())
    return RunningSequence(Sequence(request, tokens, 140, 0, 0.0, texts), slot)


def test_a_draft_model_catches_up_over_several_calls_with_a_long_prompt() -> None:
    own = backend(batch=16)
    model = DraftModel(own)
    long = running("a", 0, [97] * 40)
    assert model.propose([(long, 2)]) == [[]]
    assert model.propose([(long, 2)]) == [[]]
    assert len(model.propose([(long, 2)])[0]) == 2
    computed = own.computed_tokens
    assert len(model.propose([(long, 2)])[0]) == 2
    assert own.computed_tokens - computed == 2  # the last token again, and the first proposal


def test_a_full_cache_of_the_draft_model_begins_anew() -> None:
    model = DraftModel(backend(pool=50))
    first, second = running("a", 0, [97] * 40), running("b", 1, [98] * 40)
    assert len(model.propose([(first, 2)])[0]) == 2
    assert model.propose([(second, 2)]) == [[]]
    assert len(model.propose([(second, 2)])[0]) == 2


def test_an_id_that_another_sequence_has_now_is_computed_anew() -> None:
    model = DraftModel(backend())
    assert model.propose([(running("a", 0, list(b"abc")), 1)])
    other = running("b", 0, list(b"xyz"))
    assert model.propose([(other, 1)]) == [list(b"x")]


def test_nothing_is_proposed_beyond_the_context_of_the_draft_model() -> None:
    model = DraftModel(backend(context=20))
    assert model.propose([(running("a", 0, [97] * 19), 2)]) == [[]]
    assert len(model.propose([(running("a", 0, [97] * 18), 2)])[0]) == 2
