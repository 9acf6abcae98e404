"""The vocabulary of the benchmark model."""

from __future__ import annotations

from tests.benchmarks.vocabulary import TURN_END, byte_alphabet, synthetic_vocabulary


def test_a_synthetic_vocabulary_has_the_size_of_the_real_one_without_doubles() -> None:
    made = synthetic_vocabulary(5000)
    assert len(made.tokens) == len(set(made.tokens)) == len(made.types) == 5000


def test_every_merge_makes_a_token_of_two_earlier_ones() -> None:
    made = synthetic_vocabulary(3000)
    place = {token: index for index, token in enumerate(made.tokens)}
    for merge in made.merges:
        left, right = merge.split(" ")
        assert max(place[left], place[right]) < place[left + right]


def test_bytes_are_spelt_as_gpt2_does() -> None:
    alphabet = byte_alphabet()
    assert len(set(alphabet)) == 256
    assert (alphabet[ord(" ")], alphabet[ord("a")], alphabet[0]) == ("Ġ", "a", "Ā")


def test_only_whole_printable_text_is_plain() -> None:
    made = synthetic_vocabulary(2000)
    assert made.plain(made.tokens.index("Ġa"))
    assert not made.plain(made.tokens.index(TURN_END))
    assert not made.plain(made.tokens.index(byte_alphabet()[200]))
