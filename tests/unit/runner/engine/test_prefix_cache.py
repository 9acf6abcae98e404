from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from runner.engine.prefix_cache import FinishedSequence, PrefixCache, PrefixSharing
from runner.token_prefix import common_prefix
from tests.properties import examples


def holder(slot: int, tokens: list[int], computed: int | None = None) -> FinishedSequence:
    return FinishedSequence(slot, array("i", tokens), len(tokens) if computed is None else computed)


def finish(cache: PrefixCache, slot: int, tokens: list[int]) -> list[int]:
    cache.add(holder(slot, tokens))
    redundant = cache.finish(slot)
    for id in redundant:
        cache.remove(id)
    return redundant


@given(
    st.lists(st.integers(0, 3), max_size=300),
    st.lists(st.integers(0, 3), max_size=300),
    st.integers(0, 300),
    st.integers(0, 400),
)
@examples(60)
def test_common_prefix_is_what_comparing_one_by_one_gives(
    shared: list[int], tail: list[int], cut: int, limit: int
) -> None:
    left, right = array("i", shared + tail), array("i", shared[:cut] + tail)
    expected = 0
    while expected < min(limit, len(left), len(right)) and left[expected] == right[expected]:
        expected += 1
    assert common_prefix(left, right, limit) == expected


def test_the_longest_source_wins_running_or_finished() -> None:
    cache = PrefixCache()
    finish(cache, 0, [1, 2, 3, 9])
    cache.add(holder(1, [1, 2, 3, 4, 5, 6]))
    match = cache.longest_match(array("i", [1, 2, 3, 4, 5, 7]))
    assert match is not None
    assert (match.source.slot, match.length) == (1, 5)


def test_only_computed_tokens_count() -> None:
    cache = PrefixCache()
    cache.add(holder(1, [1, 2, 3, 4, 5, 6], computed=2))
    match = cache.longest_match(array("i", [1, 2, 3, 4]))
    assert match is not None
    assert match.length == 2


def test_one_token_is_always_left_to_compute() -> None:
    cache = PrefixCache()
    finish(cache, 0, [1, 2, 3])
    match = cache.longest_match(array("i", [1, 2, 3]))
    assert match is not None
    assert match.length == 2


def test_nothing_in_common_is_no_match() -> None:
    cache = PrefixCache()
    finish(cache, 0, [1, 2, 3])
    assert cache.longest_match(array("i", [2, 3, 4])) is None
    assert cache.longest_match(array("i", [1])) is None


def test_a_finished_prefix_of_another_is_redundant() -> None:
    cache = PrefixCache()
    assert finish(cache, 0, [1, 2]) == []
    assert finish(cache, 1, [1, 2, 3, 4]) == [0]
    assert finish(cache, 2, [1, 2, 3]) == [2]
    assert finish(cache, 3, [1, 2, 4]) == []
    assert len(cache) == 2


def test_without_partial_sharing_only_equal_sequences_are_redundant() -> None:
    cache = PrefixCache(PrefixSharing(partial=False))
    assert finish(cache, 0, [1, 2]) == []
    assert finish(cache, 1, [1, 2, 3]) == []
    assert finish(cache, 2, [1, 2, 3]) == [2]


def test_without_partial_sharing_only_whole_sources_match() -> None:
    cache = PrefixCache(PrefixSharing(partial=False))
    finish(cache, 0, [1, 2])
    finish(cache, 1, [1, 2, 3, 9])
    match = cache.longest_match(array("i", [1, 2, 3, 4]))
    assert match is not None
    assert (match.source.slot, match.length) == (0, 2)
    assert cache.longest_match(array("i", [1, 2])) is None


def test_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache()
    finish(cache, 0, [1, 1])
    finish(cache, 1, [2, 2])
    cache.longest_match(array("i", [1, 1, 1]))
    oldest = cache.oldest()
    assert oldest is not None
    assert oldest.slot == 1
    spared = cache.oldest(besides=oldest)
    assert spared is not None
    assert spared.slot == 0


def test_matches_are_whole_blocks_unless_the_source_ends() -> None:
    cache = PrefixCache(PrefixSharing(block_size=4))
    finish(cache, 0, [1, 2, 3, 4, 5, 6, 7])
    match = cache.longest_match(array("i", [1, 2, 3, 4, 5, 6, 9]))
    assert match is not None
    assert match.length == 4


def test_ahead_finds_a_prefix_in_progress() -> None:
    cache = PrefixCache()
    cache.add(holder(0, list(range(100)), computed=10))
    match = cache.ahead(array("i", [*range(80), 7, 7]))
    assert match is not None
    assert match.length == 80
    assert cache.ahead(array("i", [*range(9), 7, 7])) is None


def test_a_decoding_sequence_is_not_ahead() -> None:
    cache = PrefixCache()
    cache.add(holder(0, list(range(100)), computed=99))
    assert cache.ahead(array("i", range(100))) is None


def test_a_source_of_another_salt_gives_nothing() -> None:
    cache = PrefixCache()
    tokens = array("i", range(40))
    secret = FinishedSequence(0, tokens, 40, "mine")
    cache.add(secret)
    assert cache.longest_match(tokens) is None
    assert cache.longest_match(tokens, "yours") is None
    match = cache.longest_match(tokens, "mine")
    assert match is not None
    assert match.length == 39
    secret.computed = 5
    assert cache.ahead(tokens) is None
    assert cache.ahead(tokens, "mine") is not None


def test_a_finished_sequence_keeps_its_salt_beside_an_equal_one_of_another() -> None:
    cache = PrefixCache()
    tokens = array("i", range(40))
    for slot, salt in enumerate((None, "mine")):
        cache.add(FinishedSequence(slot, tokens, 40, salt))
        assert cache.finish(slot) == []
    for slot, salt in enumerate((None, "mine")):
        match = cache.longest_match(tokens, salt)
        assert match is not None
        assert match.source.slot == slot


def test_all_may_have_the_public_tokens_and_no_more() -> None:
    cache = PrefixCache()
    tokens = array("i", range(40))
    source = FinishedSequence(0, tokens, 40, "mine", public=15)
    cache.add(source)
    for salt, length in (("mine", 39), ("yours", 15), (None, 15)):
        match = cache.longest_match(tokens, salt)
        assert match is not None
        assert match.length == length
    source.computed = 5
    for salt, length in (("mine", 39), ("yours", 15)):
        match = cache.ahead(tokens, salt)
        assert match is not None
        assert match.length == length
    source.computed = 15
    assert cache.ahead(tokens, "yours") is None


def test_without_partial_sharing_only_a_wholly_public_source_is_open() -> None:
    sharing, tokens = PrefixSharing(partial=False), array("i", range(40))
    assert not sharing.usable(FinishedSequence(0, tokens, 30, "mine", public=29), tokens, "yours")
    assert sharing.usable(FinishedSequence(0, tokens, 30, "mine", public=30), tokens, "yours")


def test_only_what_is_as_public_makes_a_sequence_redundant() -> None:
    sharing, tokens = PrefixSharing(), array("i", range(40))
    inner = FinishedSequence(0, tokens[:20], 20, "mine", public=10)
    for salt, public, covers in (
        ("mine", 9, False),
        ("mine", 10, True),
        ("yours", 19, False),
        ("yours", 20, True),
    ):
        assert sharing.covers(FinishedSequence(1, tokens, 40, salt, public=public), inner) == covers


HALF = (("one", 0.5),)


def test_a_prefix_is_of_no_use_with_other_adapters_or_scales() -> None:
    cache = PrefixCache()
    tokens = array("i", range(40))
    source = FinishedSequence(0, tokens, 20, "mine", public=15, adapters=HALF)
    cache.add(source)
    for salt, length in (("mine", 20), ("yours", 15)):
        assert cache.longest_match(tokens, salt) is None
        for others in ((("one", 1.0),), (("two", 0.5),)):
            assert cache.longest_match(tokens, salt, others) is None
            assert cache.ahead(tokens, salt, others) is None
        match = cache.longest_match(tokens, salt, HALF)
        assert match is not None
        assert match.length == length
    assert cache.ahead(tokens, "mine", HALF) is not None
    other = FinishedSequence(1, tokens, 40, "mine", public=15)
    assert not PrefixSharing().covers(other, source)  # type: ignore[arg-type]
