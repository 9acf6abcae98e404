from __future__ import annotations

import math

import pytest

from runner.errors import InvalidRequest
from runner.types import SamplingParams
from runner.worker.sampling_resolver import MAX_KNOWN_BREAKERS, SamplingResolver
from tests.fake_backend import END, EOS, VOCABULARY, FakeTokenizer

PLAIN = SamplingParams()


def tokens(text: str) -> list[int]:
    return FakeTokenizer().encode(text, add_bos=False, parse_special=False)


def test_every_token_of_a_text_gets_its_bias_once() -> None:
    params = SamplingParams(logit_bias=((3, 1.0),), text_bias=(("aba", -2.0),))
    resolved = SamplingResolver(FakeTokenizer()).resolve(params)
    assert resolved.text_bias == ()
    assert resolved.logit_bias[0] == (3, 1.0)
    assert sorted(resolved.logit_bias[1:]) == sorted((token, -2.0) for token in set(tokens("ab")))


def test_end_tokens_are_barred_by_a_bias() -> None:
    wording, params = SamplingResolver(FakeTokenizer()), SamplingParams(logit_bias=((3, 1.0),))
    barred = wording.resolve(params, bar_end_tokens=True).logit_bias
    ends = [token for token in range(FakeTokenizer().vocabulary) if FakeTokenizer().is_end(token)]
    assert ends
    assert barred == ((3, 1.0), *((token, -math.inf) for token in ends))


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


def test_bad_words_are_banned_within_a_word_and_at_its_beginning() -> None:
    runs = SamplingResolver(FakeTokenizer()).resolve(SamplingParams(bad_words=("ab",))).banned_runs
    assert runs == (tuple(tokens("ab")), tuple(tokens(" ab")))


def test_what_ends_an_answer_is_known_where_it_must_not_come_early() -> None:
    params = SamplingParams(min_tokens=1, stop_token_ids=(7,))
    assert SamplingResolver(FakeTokenizer()).resolve(params).end_token_ids == (EOS, END, 7)


@pytest.mark.parametrize("name", ["stop_token_ids", "allowed_token_ids"])
def test_tokens_that_do_not_exist_are_refused_by_name(name: str) -> None:
    params = SamplingParams(**{name: (1, VOCABULARY)})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=f"{name}: token {VOCABULARY} is not in") as refusal:
        SamplingResolver(FakeTokenizer()).resolve(params)
    assert refusal.value.details["param"] == name


def test_samplers_that_are_not_named_do_nothing() -> None:
    params = SamplingParams(
        top_k=5, top_p=0.5, min_p=0.1, repeat_penalty=2.0, temperature=3.0, samplers=("top_k",)
    )
    off = SamplingResolver(FakeTokenizer()).resolve(params)
    assert off == SamplingParams(top_k=5, top_p=1.0, min_p=0.0, repeat_penalty=1.0, temperature=1.0)


def test_only_an_order_of_its_own_is_kept() -> None:
    resolve = SamplingResolver(FakeTokenizer()).resolve
    usual = ("penalties", "dry", "top_k", "top_p", "temperature")
    assert resolve(SamplingParams(samplers=usual)).samplers is None
    other = ("penalties", "temperature", "top_p")
    assert resolve(SamplingParams(samplers=other)).samplers == ("temperature", "top_p")


def test_penalties_behind_a_filter_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="name them first") as refusal:
        SamplingResolver(FakeTokenizer()).resolve(SamplingParams(samplers=("top_k", "penalties")))
    assert refusal.value.details["param"] == "samplers"
