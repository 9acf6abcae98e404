"""The vocabulary of a model loaded by llama.cpp.

Knows nothing of templates; lives as long as the model's handle.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native

from runner.backends.backend import Tokenizer, TooManyTokens
from runner.backends.host_sampling.text_cuts import MAX_PART_BYTES, WHOLE_BYTES, Part, TextCuts
from runner.backends.host_sampling.wordpiece import normalized
from runner.backends.turns import pause
from runner.errors import InvalidRequest


class LlamaCppTokenizer(Tokenizer):
    """The vocabulary of a GGUF file, by llama.cpp's functions."""

    def __init__(self, vocabulary: Any) -> None:
        self._handle = vocabulary
        self.vocabulary: int = native.llama_vocab_n_tokens(vocabulary)
        self.bos = _token(native.llama_vocab_bos(vocabulary))
        self.eos = _token(native.llama_vocab_eos(vocabulary))
        self._pieces: list[bytes | None] = [None] * self.vocabulary
        self._cuts: TextCuts | None = None  # made for the first long text
        self._wordpiece = native.llama_vocab_type(vocabulary) == native.LLAMA_VOCAB_TYPE_WPM
        self._strips_accents = self._wordpiece and self._split(b"\xc3\xa9") == self._split(b"e")

    @property
    def native_vocabulary(self) -> Any:
        """llama.cpp's, which lives as long as this."""
        return self._handle

    def encode(
        self, text: str, *, add_bos: bool, parse_special: bool, max_tokens: int | None = None
    ) -> list[int]:
        """See Tokenizer.encode. add_bos also adds what else the
        vocabulary asks for (SEP or EOS of embedding models). A lone surrogate becomes U+FFFD."""
        data = _utf8(text)
        if len(data) <= WHOLE_BYTES:
            return self._encode(data, add_bos, parse_special)
        around = self._encode(b"", add_bos, parse_special)
        head = 1 if self._wordpiece or native.llama_vocab_get_add_bos(self._handle) else 0
        tokens = around[:head]
        for part in self._text_cuts().parts(data, parse_special=parse_special):
            if max_tokens is not None and len(tokens) > max_tokens:
                raise TooManyTokens(len(tokens), tokens)
            self._check(part, tokens, max_tokens)
            lead = len(self._encode(part.lead, False, parse_special)) if part.lead else 0
            tokens += self._encode(part.lead + part.data, False, parse_special)[lead:]
            pause()
        return tokens + around[head:]

    def min_tokens(self, text: str) -> int:
        return self._text_cuts().min_tokens(text) if len(text) > WHOLE_BYTES else 0

    def _check(self, part: Part, tokens: list[int], max_tokens: int | None) -> None:
        """Raises for what takes too long in one: TooManyTokens where it cannot be few, else
        InvalidRequest."""
        size = len(part.data)
        if size <= WHOLE_BYTES:
            return
        least = len(tokens) + self._text_cuts().min_tokens(part.data)
        if max_tokens is not None and least > max_tokens:
            raise TooManyTokens(least, tokens)
        if size > MAX_PART_BYTES and self._text_cuts().possible:
            raise InvalidRequest(
                f"the text has a stretch of {size} bytes in which it cannot be cut (one word, or "
                f"white space only); at most {MAX_PART_BYTES} can be tokenized: break it up"
            )

    def _text_cuts(self) -> TextCuts:
        if self._cuts is None:
            letter = b"".join(map(self.piece, self._encode(b"a", False, False)))
            self._cuts = TextCuts(self._handle, self.piece, letter)
        return self._cuts

    def _encode(self, data: bytes, add_bos: bool, parse_special: bool) -> list[int]:
        if self._wordpiece:
            data = normalized(data, strips_accents=self._strips_accents)
        return self._split(data, add_bos, parse_special)

    def _split(self, data: bytes, add_bos: bool = False, parse_special: bool = False) -> list[int]:
        capacity = len(data) + 2  # a token covers at least a byte; BOS and EOS may be added
        while True:
            tokens = np.empty(capacity, np.int32)
            pointer = tokens.ctypes.data_as(native.llama_token_p)
            count = native.llama_tokenize(
                self._handle, data, len(data), pointer, capacity, add_bos, parse_special
            )
            if count >= 0:
                return list(tokens[:count].tolist())
            capacity = -count

    def piece(self, token: int) -> bytes:
        """See Tokenizer.piece. Raises IndexError outside the vocabulary."""
        known = self._pieces[token] if token >= 0 else None
        if known is None:
            known = self._pieces[token] = self._bytes(token, special=False)
        return known

    def text(self, token: int) -> str:
        """See Tokenizer.text. Raises IndexError outside the vocabulary."""
        return self._bytes(token, special=True).decode("utf-8", "replace")

    def _bytes(self, token: int, *, special: bool) -> bytes:
        if not 0 <= token < self.vocabulary:  # llama.cpp would end the process
            raise IndexError(f"no token {token}; there are 0 to {self.vocabulary - 1}")
        capacity = 64
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            count = native.llama_token_to_piece(self._handle, token, buffer, capacity, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            capacity = -count

    def is_end(self, token: int) -> bool:
        return 0 <= token < self.vocabulary and bool(native.llama_vocab_is_eog(self._handle, token))


def _token(id: int) -> int | None:
    return None if id == native.LLAMA_TOKEN_NULL else id


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
