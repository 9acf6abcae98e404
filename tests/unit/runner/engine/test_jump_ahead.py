"""What a grammar forces, and what an answer is used to write."""

from __future__ import annotations

import json

import pytest

from runner.engine.grammar import Grammars, LlguidanceMatcher
from runner.types import Grammar
from tests.fake_backend import EOS, FakeTokenizer

NOTHING: tuple[list[int], list[float]] = ([], [])
SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in ("first", "second", "third")},
    "required": ["first", "second", "third"],
    "additionalProperties": False,
}


@pytest.fixture
def matcher() -> LlguidanceMatcher:
    return Grammars(FakeTokenizer()).matcher(Grammar("json_schema", json.dumps(SCHEMA)))


def wrote(matcher: LlguidanceMatcher, text: bytes) -> None:
    for token in text:
        matcher.accept(token)


def proposed(
    matcher: LlguidanceMatcher, limit: int = 32, past: tuple[list[int], list[float]] = NOTHING
) -> bytes:
    tokens, odds = matcher.propose(past, limit)
    assert len(tokens) == len(odds) <= limit
    return bytes(tokens)


def test_what_is_forced_is_proposed(matcher: LlguidanceMatcher) -> None:
    assert proposed(matcher) == b"{"
    wrote(matcher, b'{"')
    assert proposed(matcher).startswith(b'first"')
    assert proposed(matcher, limit=3) == b"fir"


def test_an_answer_goes_on_to_write_the_white_space_that_it_wrote(
    matcher: LlguidanceMatcher,
) -> None:
    proposed(matcher)  # from here on it is followed
    wrote(matcher, b'{"first": 1, "second": 2, "')
    assert proposed(matcher).startswith(b'third": ')


def test_the_past_is_followed_as_far_as_the_grammar_allows_it(matcher: LlguidanceMatcher) -> None:
    wrote(matcher, b'{"first":')
    past = list(b'42,"second":"x"')
    assert proposed(matcher, past=(past, [0.9] * len(past))) == b'42,"second":'
    assert proposed(matcher, past=([EOS], [0.9])) == b""


def test_nothing_is_proposed_that_ends_the_answer(matcher: LlguidanceMatcher) -> None:
    wrote(matcher, b'{"first":1,"second":2,"third":3')
    past = list(b"}}")
    assert proposed(matcher, past=(past, [0.9] * 2)) == b""
    wrote(matcher, b"}")
    assert matcher.complete
    assert proposed(matcher) == b""


def test_the_masks_of_a_draft_are_those_of_the_tokens_one_by_one(
    matcher: LlguidanceMatcher,
) -> None:
    wrote(matcher, b'{"')
    ahead = [mask.bits() for mask in matcher.draft(list(b'first"'))]
    for token, bits in zip(b'first"', ahead, strict=True):
        matcher.accept(token)
        assert matcher.bits() == bits
    matcher.draft(list(b":1"))
    wrote(matcher, b" ")  # something else than the draft
    assert matcher.bits()[ord(":") >> 3] >> (ord(":") & 7) & 1
    assert not matcher.bits()[ord("1") >> 3] >> (ord("1") & 7) & 1
