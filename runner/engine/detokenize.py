"""From tokens to text, a token at a time, without ever showing half a character.

Owns the bytes of an incomplete UTF-8 sequence. Knows the vocabulary only by the bytes of a token.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection
from dataclasses import dataclass

from runner.backends.backend import Tokenizer
from runner.types import Delta

_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """The concatenation of all that push and flush return equals the whole of the bytes decoded
    at once with errors="replace", wherever the token borders are."""

    __slots__ = ("_decoder", "pending")

    def __init__(self) -> None:
        self._decoder = _decoder("replace")
        self.pending = False  # bytes of an incomplete character are held back

    def push(self, piece: bytes) -> str:
        """The text that piece completes."""
        text = self._decoder.decode(piece)
        self.pending = bool(self._decoder.getstate()[0])
        return text

    def flush(self) -> str:
        """The end of the text: what is held back, as one U+FFFD, or nothing."""
        self.pending = False
        return self._decoder.decode(b"", final=True)


@dataclass(frozen=True, slots=True)
class TokenText:
    """What the engine needs to know of a token. delta is what it adds to an answer when nothing is
    held back, None for end tokens and where piece is not whole UTF-8."""

    piece: bytes
    is_end: bool
    delta: Delta | None


class TokenTexts(dict[int, TokenText]):
    """The tokens seen so far: one dictionary look-up where the tokenizer would cost several
    native calls. Of control tokens only those whose text is in kept have one. ends: end tokens
    beside the vocabulary's own."""

    def __init__(
        self, tokenizer: Tokenizer, kept: Collection[str] = (), ends: Collection[int] = ()
    ) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._kept = kept
        self._ends = frozenset(ends)

    def name(self, token: int) -> bytes:
        """The bytes that a token stands for, or is called by if it is a control token."""
        return self[token].piece or self._tokenizer.text(token).encode("utf-8")

    def __missing__(self, token: int) -> TokenText:
        piece = self._tokenizer.piece(token)
        if not piece and self._kept:
            name = self._tokenizer.text(token)
            piece = name.encode("utf-8") if name in self._kept else b""
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError:
            text = None
        is_end = token in self._ends or self._tokenizer.is_end(token)
        delta = None if text is None or is_end else Delta(text, 1)
        entry = self[token] = TokenText(piece, is_end, delta)
        return entry
