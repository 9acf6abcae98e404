"""What followed in the past."""

from __future__ import annotations

from collections.abc import Sequence as Items

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engine import lookup as lookup_module
from runner.engine.detokenize import TokenTexts
from runner.engine.lookup import PromptLookup
from runner.engine.running_sequence import RunningSequence
from runner.engine.sequence import Sequence
from runner.types import GenerateRequest
from tests.fake_backend import FakeTokenizer


def running(id: str, tokens: Items[int], salt: str | None = None) -> RunningSequence:
    request = GenerateRequest(id, max_tokens=50, cache_salt=salt)
    texts = TokenTexts(FakeTokenizer())
    return RunningSequence(Sequence(request, tokens, 10_000, 0, 0.0, texts), 0)


def proposed(lookup: PromptLookup, one: RunningSequence, limit: int = 8) -> list[int]:
    lookup.follow([one])
    tokens, odds = lookup.propose(one, limit)
    assert len(tokens) == len(odds) <= limit
    return tokens


@pytest.mark.parametrize(
    ("tokens", "most", "expected"),
    [
        ([1, 2, 3, 4, 5, 1, 2, 3], 2, [4, 5]),
        ([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], 1, [8]),  # the last time counts
        ([0, 1, 2, 3, 9, 5, 1, 2, 3, 8, 0, 1, 2, 3], 1, [9]),  # but the longest match before it
        ([7, 7, 7, 7], 3, [7, 7, 7]),  # what repeats itself goes on to do so
        ([1, 2, 3, 4, 5, 6], 3, []),
        ([5], 3, []),
        ([1, 2, 3, -1, -2, 1, 2, 3], 5, []),  # an image
        ([1, 2, 3, 4, 1, 2, 3], 0, []),
    ],
)
def test_what_followed_the_last_tokens_before(
    tokens: list[int], most: int, expected: list[int]
) -> None:
    assert proposed(PromptLookup(), running("a", tokens), most) == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 39))
def test_following_gives_what_looking_up_anew_gives(tokens: list[int], known: int) -> None:
    """Long matches that break are remembered; these are too short for that."""
    one = running("a", tokens[:known])
    lookup = PromptLookup()
    proposed(lookup, one)
    for token in tokens[known:]:
        one.tokens.append(token)
        found = proposed(lookup, one)
        at = len(one.tokens)
        if found:
            assert found[0] in [
                one.tokens[i] for i in range(1, at) if one.tokens[i - 1] == one.tokens[-1]
            ]


def test_a_text_that_is_copied_with_a_change_goes_on_after_it() -> None:
    text = list(range(100, 160))
    changed = [*text[:30], 7]
    one = running("a", [*text, 1, *changed[:-1]])
    lookup = PromptLookup()
    assert proposed(lookup, one)[:3] == text[30:33]
    one.tokens.append(7)
    assert proposed(lookup, one)[:2] == text[31:33]  # one token may have been replaced
    one.tokens.append(8)
    one.tokens.append(text[33])  # two were replaced by one more
    assert proposed(lookup, one)[:2] == text[34:36]


def test_answers_help_other_requests_of_the_same_salt_only() -> None:
    lookup = PromptLookup()
    first = running("a", [1, 2, 3], "mine")
    lookup.follow([first])
    first.tokens.extend([50, 51, 52, 53, 54, 55])
    lookup.follow([first])
    lookup.follow([])
    assert proposed(lookup, running("b", [9, 50, 51, 52], "mine"))[:3] == [53, 54, 55]
    assert proposed(lookup, running("c", [9, 50, 51, 52], "other")) == []
    assert proposed(lookup, running("d", [9, 50, 51, 52])) == []
    assert proposed(lookup, running("e", [9, 1, 2], "mine")) == []  # of the prompt nothing is kept


def test_few_salts_and_few_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "MAX_SALTS", 2)
    monkeypatch.setattr(lookup_module, "MAX_ANSWER_TOKENS", 20)
    lookup = PromptLookup()

    def answered(id: str, salt: str, tokens: Items[int]) -> None:
        one = running(id, [1], salt)
        lookup.follow([one])
        one.tokens.extend(tokens)
        lookup.follow([one])
        lookup.follow([])

    for salt in "abc":
        answered("1" + salt, salt, range(50, 60))
    probe = [50, 51, 52]
    assert proposed(lookup, running("x", probe, "a")) == []
    assert proposed(lookup, running("y", probe, "c"))[:2] == [53, 54]
    answered("2c", "c", range(60, 75))
    assert proposed(lookup, running("z", probe, "c")) == []
    assert proposed(lookup, running("w", [70, 71, 72], "c"))[:2] == [73, 74]


def test_odds_follow_what_was_right() -> None:
    lookup = PromptLookup()
    lookup.follow([right := running("a", [1, 2, 3, 4, 5, 6, 1, 2, 3])])
    before = lookup.propose(right, 1)[1][0]
    for _ in range(40):
        tokens, _ = lookup.propose(right, 1)
        right.tokens.append(tokens[0])
        lookup.follow([right])
    assert lookup.propose(right, 1)[1][0] > max(before, 0.9)


def test_a_context_that_was_shifted_is_followed_anew() -> None:
    lookup = PromptLookup()
    one = running("a", [1, 2, 3, 4, 5, 1, 2, 3])
    assert proposed(lookup, one)[0] == 4
    one.tokens = one.tokens[4:]
    assert proposed(lookup, one) == []


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([9, 5, 1, 9, 5, 2, 9, 5, 3, 9, 6, 4, 9], [5]),  # what followed most often, not last
        ([8, 9, 6, 1, 9, 5, 2, 9, 5, 3, 8, 9], [5]),  # one place with one token more is as good ...
        (
            [7, 8, 9, 6, 1, 9, 5, 2, 9, 5, 3, 7, 8, 9],
            [6],
        ),  # ... as two; with two more, it is better
        ([9, -1, 9, -1, 9], []),  # an image
    ],
)
def test_places_vote_where_matches_are_short(tokens: list[int], expected: list[int]) -> None:
    assert proposed(PromptLookup(), running("a", tokens), 1) == expected


def test_recent_answers_vote_too() -> None:
    lookup = PromptLookup()
    first = running("a", [1])
    lookup.follow([first])
    first.tokens.extend([9, 5, 2, 9, 5, 3])
    lookup.follow([first])
    lookup.follow([])
    assert proposed(lookup, running("b", [9, 6, 4, 9]), 1) == [5]


def test_without_the_time_for_votes_the_last_place_counts() -> None:
    lookup, one = PromptLookup(), running("a", [9, 5, 1, 9, 5, 2, 9, 6, 4, 9])
    lookup.follow([one], votes=False)
    assert lookup.propose(one, 1)[0] == [6]
    lookup.follow([one])
    assert lookup.propose(one, 1)[0] == [5]


def test_votes_that_were_right_or_wrong_change_the_odds_of_all_sequences() -> None:
    text = [9, 5, 1, 9, 5, 2, 9]

    def odds_after(token: int) -> float:
        lookup = PromptLookup()
        for number in range(20):
            one = running(f"a{number}", text, f"{number}")
            proposed(lookup, one, 1)
            one.tokens.append(token)
            lookup.follow([one])
        other = running("b", text, "other")
        lookup.follow([other])
        return lookup.propose(other, 1)[1][0]

    assert odds_after(5) > 0.8
    assert odds_after(6) < 0.2


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_votes_propose_only_what_followed_before(tokens: list[int]) -> None:
    found = proposed(PromptLookup(), running("a", tokens))
    text = [*tokens, *found]
    for at in range(len(tokens), len(text)):
        pairs = {(tokens[i - 1], tokens[i]) for i in range(1, len(tokens))}
        assert (text[at - 1], text[at]) in pairs
