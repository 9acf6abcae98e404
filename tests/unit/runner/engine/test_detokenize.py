from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from runner.engine.detokenize import Detokenizer, TokenText, TokenTexts
from runner.types import Delta
from tests.fake_backend import EOS, FakeTokenizer
from tests.properties import examples


def pieces_of(data: bytes, borders: list[int]) -> list[bytes]:
    cuts = sorted({0, len(data), *(border % (len(data) + 1) for border in borders)})
    return [data[a:b] for a, b in pairwise(cuts)]


bytes_like_text = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    st.text("äé🙂漢a", max_size=20).map(lambda text: text.encode()[:-1]),
)


@given(bytes_like_text, st.lists(st.integers(0, 1000), max_size=12))
@examples(100)
def test_all_pieces_together_give_the_text_of_the_whole(data: bytes, borders: list[int]) -> None:
    detokenizer = Detokenizer()
    text = "".join(detokenizer.push(piece) for piece in pieces_of(data, borders))
    assert text + detokenizer.flush() == data.decode("utf-8", "replace")


@given(st.text("aä漢🙂", min_size=1, max_size=20))
@examples(40)
def test_valid_text_never_shows_a_replacement_character(text: str) -> None:
    detokenizer = Detokenizer()
    shown = ""
    for byte in text.encode():
        shown += detokenizer.push(bytes([byte]))
        assert text.startswith(shown)
    assert shown + detokenizer.flush() == text


def test_pending_tells_whether_bytes_are_held_back() -> None:
    detokenizer = Detokenizer()
    assert detokenizer.push("é".encode()[:1]) == ""
    assert detokenizer.pending
    assert detokenizer.push("é".encode()[1:]) == "é"
    assert not detokenizer.pending


def test_a_dangling_character_becomes_one_replacement_character() -> None:
    detokenizer = Detokenizer()
    detokenizer.push("🙂".encode()[:3])
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_the_table_knows_pieces_deltas_and_ends() -> None:
    table = TokenTexts(FakeTokenizer())
    assert table[97] == TokenText(b"a", False, Delta("a", 1))
    assert table[0xC3] == TokenText(b"\xc3", False, None)
    assert table[EOS] == TokenText(b"", True, None)
    assert table[97] is table[97]
