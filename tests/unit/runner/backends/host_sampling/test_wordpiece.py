"""What BERT's own tokenizer does to a text, and llama.cpp leaves out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.host_sampling.wordpiece import normalized


def changed(text: str, strips_accents: bool = True) -> str:
    return normalized(text.encode(), strips_accents=strips_accents).decode()


def test_letters_are_taken_apart_and_lose_their_accents() -> None:
    assert changed("\ud55c\uad6d") == "\u1112\u1161\u11ab\u1100\u116e\u11a8"
    assert changed("Été e\u0301t\u00e9 naïve İ") == "Ete ete naive I"
    assert changed("नमस्ते") == "नमसत"  # vowel signs that take no room go, as in BERT


def test_accents_stay_where_the_vocabulary_has_them() -> None:
    assert changed("한국 été", strips_accents=False) == "한국 été"


def test_a_word_of_more_than_100_letters_is_unknown() -> None:
    assert changed("a" * 100 + " b") == "a" * 100 + " b"
    assert changed(f"b {'a' * 101}, {'é' * 101}.b") == "b \uffff, \uffff.b"
    assert changed("_".join(["a" * 60] * 3)) == "_".join(["a" * 60] * 3)
    assert changed("火" * 200) == "火" * 200
    assert changed("é" * 60, strips_accents=False) == "é" * 60


@given(st.text(max_size=60))
def test_against_the_normalizer_of_tokenizers(text: str) -> None:
    normalizers = pytest.importorskip("tokenizers").normalizers
    theirs = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    whole = text.encode("utf-8", "replace").decode()
    assert changed(whole) == theirs.normalize_str(whole)
