from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.server.openai.responses.logprobs import PendingTokens
from runner.types import TokenLogprob


def tokens(*pieces: str | bytes) -> list[TokenLogprob]:
    return [
        TokenLogprob(number, piece.encode() if isinstance(piece, str) else piece, -1.0)
        for number, piece in enumerate(pieces)
    ]


def pieces(found: list[TokenLogprob]) -> list[bytes]:
    return [token.piece for token in found]


def test_text_that_comes_late_finds_its_tokens() -> None:
    waiting = PendingTokens()
    waiting.add(tokens("he", "ll"))
    assert pieces(waiting.take("he")) == [b"he"]
    waiting.add(tokens("o"))
    assert pieces(waiting.take("llo")) == [b"ll", b"o"]


def test_marks_that_are_not_shown_are_dropped() -> None:
    waiting = PendingTokens()
    waiting.add(tokens("why", "</think>", "\n\n", "so", ""))
    assert pieces(waiting.take("why")) == [b"why"]
    assert pieces(waiting.take("so")) == [b"so"]


def test_a_token_that_two_texts_share_is_told_once() -> None:
    waiting = PendingTokens()
    waiting.add(tokens("ab", "cd"))
    assert pieces(waiting.take("abc")) == [b"ab", b"cd"]
    assert pieces(waiting.take("d")) == []


def test_half_characters_belong_to_the_text_that_replaces_them() -> None:
    waiting = PendingTokens()
    waiting.add(tokens("a", b"\xc3"))
    assert pieces(waiting.take("a\ufffd")) == [b"a", b"\xc3"]


@given(st.lists(st.text("abc", min_size=1, max_size=3), max_size=8), st.data())
def test_all_that_is_shown_has_all_its_tokens_once(parts: list[str], data: st.DataObject) -> None:
    waiting = PendingTokens()
    waiting.add(tokens(*parts))
    text, found = "".join(parts), []
    while text:
        size = data.draw(st.integers(1, len(text)))
        found += waiting.take(text[:size])
        text = text[size:]
    assert pieces(found) == [part.encode() for part in parts]
