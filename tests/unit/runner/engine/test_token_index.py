"""Where the same tokens stood before."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from runner.engine.token_index import MAX_CONTEXT, MAX_LENGTH, RUN_TOKENS, TokenIndex

few_tokens = st.lists(st.sampled_from([0, 1, 2, 1 << 20, -1]), max_size=60)


def longest(tokens: list[int], text: list[int], last: int) -> tuple[int, int]:
    """By looking at every place up to last: the last one with most tokens in common."""
    best = (0, 0)
    for place in range(1, last + 1):
        length = 0
        while length < min(place, len(text), MAX_LENGTH) and (
            tokens[place - 1 - length] == text[-1 - length]
        ):
            length += 1
        if length and length >= best[1]:
            best = (place, length)
    return best


@given(few_tokens, st.integers(0, 60))
def test_a_text_is_found_in_itself_as_a_search_of_every_place_finds_it(
    tokens: list[int], known: int
) -> None:
    text = array("i", tokens)
    index = TokenIndex(text, min(known, max(len(text) - 1, 0)))
    for end in range(len(index) + 1, len(text) + 1):
        place, length = index.find(text, end)
        expected = longest(tokens, tokens[:end], end - 1)
        if expected[1] < RUN_TOKENS:  # the last place of the token is taken
            last = longest(tokens, tokens[end - 1 : end], end - 1)[0]
            assert (place, min(length, 1)) == (last, min(expected[1], 1))
        elif tokens.count(tokens[end - 1]) <= 8:  # else not all places are looked at
            assert (place, length) == expected
        assert tokens[place - length : place] == tokens[end - length : end]
        index.extend()
    assert len(index) == len(text) if text else len(index) == 0


@given(few_tokens, few_tokens)
def test_what_is_found_in_another_text_is_there(tokens: list[int], other: list[int]) -> None:
    index = TokenIndex(array("i", tokens), len(tokens))
    place, length = index.find(array("i", other), len(other))
    assert bool(length) == bool(other and other[-1] in tokens)
    assert tokens[place - length : place] == other[len(other) - length :]


def test_runs_that_look_alike_in_an_index_are_told_apart() -> None:
    """Keys of three tokens have room for 20 bits of each."""
    tokens = array("i", [1, 0, 5, 9, 0, 1 << 20, 5])
    index = TokenIndex(tokens, 6)
    assert index.find(tokens, 7) == (3, 1)


@given(st.lists(st.sampled_from([0, 1, 2, 3, -1]), max_size=24), st.integers(0, 24), st.data())
def test_all_that_followed_a_context_is_found_with_the_length_of_the_match(
    tokens: list[int], known: int, data: st.DataObject
) -> None:
    """Few enough that all places are looked at."""
    tokens = [token for at, token in enumerate(tokens) if tokens[:at].count(token) < 16]
    index = TokenIndex(array("i", tokens), min(known, len(tokens)))
    for _ in range(len(index), len(tokens)):
        index.extend()
    context = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, -1]), min_size=1, max_size=9))
    expected = []
    for place in range(1, len(tokens)):
        length = 0
        while length < min(place, len(context), MAX_CONTEXT) and (
            tokens[place - 1 - length] == context[-1 - length]
        ):
            length += 1
        if length:
            expected.append((tokens[place], length))
    assert sorted(index.following(context)) == sorted(expected)
