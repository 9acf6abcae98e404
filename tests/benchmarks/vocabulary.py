"""The vocabulary of the benchmark model: copied from a real one, or a synthetic one.

A synthetic vocabulary has the same size and kind (byte-level BPE with merges), so that tokenizer,
sampler and detokenizer do the same work where no vocabulary file is at hand.
"""

from __future__ import annotations

import itertools
import string
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gguf import GGUFReader, TokenType

SIZE = 151_936  # Qwen3's
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens in byte-level BPE spelling, their gguf token types, and the merges in order."""

    tokens: list[str]
    types: list[int]
    merges: list[str]
    pre: str = "qwen2"

    def plain(self, token: int) -> bool:
        """True for a token that is whole printable ASCII text, maybe after one space."""
        text = self.tokens[token].removeprefix("Ġ")
        return self.types[token] == TokenType.NORMAL and text.isascii() and text.isprintable()


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a GGUF file, for example a ggml-vocab-*.gguf without tensors."""
    fields = GGUFReader(path).fields

    def values(key: str) -> list[object]:
        return cast("list[object]", fields[f"tokenizer.ggml.{key}"].contents())

    return Vocabulary(
        tokens=cast("list[str]", values("tokens")),
        types=cast("list[int]", values("token_type")),
        merges=cast("list[str]", values("merges")),
        pre=str(fields["tokenizer.ggml.pre"].contents()),
    )


def synthetic_vocabulary(size: int = SIZE) -> Vocabulary:
    """All bytes, all pairs of letters, then pairs of pairs up to size, with their merges."""
    tokens = byte_alphabet()
    merges = []
    pairs = [a + b for a, b in itertools.product(string.ascii_lowercase, repeat=2)]
    starts = [*string.ascii_lowercase, "Ġ"]
    room = size - len(tokens) - 3
    pieces = itertools.chain(
        itertools.product(starts, string.ascii_lowercase), itertools.product(pairs, repeat=2)
    )
    for left, right in itertools.islice(pieces, room):
        merges.append(f"{left} {right}")
        tokens.append(left + right)
    control = [END_OF_TEXT, TURN_START, TURN_END]
    types = [int(TokenType.NORMAL)] * len(tokens) + [int(TokenType.CONTROL)] * len(control)
    return Vocabulary(tokens + control, types, merges)


def byte_alphabet() -> list[str]:
    """The 256 one-byte tokens in GPT-2's spelling: printable bytes stand for themselves, the
    others for the code points from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = itertools.count(256)
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]
