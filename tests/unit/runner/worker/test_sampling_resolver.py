from __future__ import annotations

import pytest

from runner.errors import InvalidRequest
from runner.types import SamplingParams
from runner.worker.sampling_resolver import MAX_KNOWN_BREAKERS, SamplingResolver
from tests.fake_backend import FakeTokenizer

PLAIN = SamplingParams()


def tokens(text: str) -> list[int]:
    return FakeTokenizer().encode(text, add_bos=False, parse_special=False)


def test_every_token_of_a_text_gets_its_bias_once() -> None:
    params = SamplingParams(logit_bias=((3, 1.0),), text_bias=(("aba", -2.0),))
    resolved = SamplingResolver(FakeTokenizer()).resolve(params)
    assert resolved.text_bias == ()
    assert resolved.logit_bias[0] == (3, 1.0)
    assert sorted(resolved.logit_bias[1:]) == sorted((token, -2.0) for token in set(tokens("ab")))


def test_breakers_are_looked_for_only_where_dry_acts() -> None:
    wording = SamplingResolver(FakeTokenizer())
    assert wording.resolve(PLAIN) is PLAIN
    breakers = wording.resolve(SamplingParams(dry_multiplier=1.0)).dry_breakers
    assert breakers[tokens(":")[0]] == ((),)
    assert tokens("a")[0] not in breakers


def test_a_breaker_of_several_tokens_needs_them_in_order() -> None:
    params = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=("abc",))
    first, *rest = tokens("abc")
    assert SamplingResolver(FakeTokenizer()).resolve(params).dry_breakers == {first: (tuple(rest),)}


def test_the_same_breakers_are_looked_for_once_and_few_are_kept() -> None:
    wording = SamplingResolver(FakeTokenizer())

    def found(text: str) -> object:
        params = SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=(text,))
        return wording.resolve(params).dry_breakers

    first = found("x")
    assert found("x") is first
    for number in range(MAX_KNOWN_BREAKERS):
        found(f"y{number}")
    assert found("x") is not first


def test_a_bias_of_very_many_tokens_is_refused() -> None:
    texts = (("".join(map(chr, range(128))), 1.0),) * 33
    with pytest.raises(InvalidRequest, match="the texts have"):
        SamplingResolver(FakeTokenizer()).resolve(SamplingParams(text_bias=texts))
