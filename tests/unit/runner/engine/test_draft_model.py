"""A smaller model that proposes."""

from __future__ import annotations

from collections.abc import Sequence as Items

from runner.backends.backend import Capacity
from runner.engine.detokenize import TokenTexts
from runner.engine.draft_model import DraftModel
from runner.engine.running_sequence import RunningSequence
from runner.engine.sequence import Sequence
from runner.types import GenerateRequest
from tests.fake_backend import VOCABULARY, FakeBackend, FakeTokenizer


def backend(pool: int = 500, context: int = 140, batch: int = 64) -> FakeBackend:
    return FakeBackend(Capacity(pool, 4, context, batch, VOCABULARY, 1, True))


def running(id: str, slot: int, tokens: Items[int]) -> RunningSequence:
    request, texts = GenerateRequest(id, max_tokens=50), TokenTexts(FakeTokenizer())
    return RunningSequence(Sequence(request, tokens, 140, 0, 0.0, texts), slot)


def proposed(
    model: DraftModel, one: RunningSequence, limit: int = 2, least: float = 0.0
) -> list[int]:
    model.odds(one, least)
    ((tokens, odds),) = model.propose([(one, limit)], least)
    assert len(tokens) == len(odds)
    return tokens


def test_it_catches_up_over_several_calls_with_a_long_prompt() -> None:
    own = backend(batch=16)
    model = DraftModel(own)
    long = running("a", 0, [97] * 40)
    assert proposed(model, long) == []
    assert proposed(model, long) == []
    assert len(proposed(model, long)) == 2
    computed = own.computed_tokens
    assert len(proposed(model, long)) == 2
    assert own.computed_tokens - computed == 2  # the last token again, and the first proposal


def test_a_full_cache_begins_anew() -> None:
    model = DraftModel(backend(pool=50))
    first, second = running("a", 0, [97] * 40), running("b", 1, [98] * 40)
    assert len(proposed(model, first)) == 2
    assert proposed(model, second) == []
    assert len(proposed(model, second)) == 2


def test_an_id_that_another_sequence_has_now_is_computed_anew() -> None:
    model = DraftModel(backend())
    assert proposed(model, running("a", 0, list(b"abc")), 1)
    assert proposed(model, running("b", 0, list(b"xyz")), 1) == list(b"x")


def test_nothing_is_proposed_beyond_its_context() -> None:
    model = DraftModel(backend(context=20))
    assert proposed(model, running("a", 0, [97] * 19)) == []
    assert len(proposed(model, running("a", 0, [97] * 18))) == 2


def test_what_is_needed_less_likely_than_worth_is_not_proposed() -> None:
    model = DraftModel(backend())
    assert len(proposed(model, running("a", 0, list(b"abc")), 8, least=0.5)) < 8
    assert len(proposed(model, running("b", 1, list(b"abc")), 8)) == 8


def test_who_is_often_wrong_is_asked_no_more_but_by_one_of_many() -> None:
    model = DraftModel(backend())
    one = running("a", 0, list(b"abc"))
    asked = 0
    while model.odds(one, 0.5) and asked < 60:
        proposed(model, one, least=0.5)
        one.tokens.append(200)  # never what it says
        asked += 1
    assert 8 <= asked < 30
    tried = [bool(model.odds(running(f"b{at}", 1, list(b"abc")), 0.5)) for at in range(32)]
    assert tried.count(True) == 2
