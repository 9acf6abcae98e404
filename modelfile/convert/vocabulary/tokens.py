"""The list of tokens by their ids, as it grows out of the files of a tokenizer.

Owns the rules of what may stand at an id. Knows no file formats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from modelfile.convert.files import brief, refusal
from modelfile.convert.metadata import MetadataValue

MAX_TOKENS: Final = 1 << 22
MAX_TOKEN_BYTES: Final = 1 << 16
UNUSED_SCORE: Final = -10000.0
ADDED_SCORE: Final = -1000.0


class TokenType(IntEnum):
    """Kinds of tokens, by the numbers of tokenizer.ggml.token_type."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class VocabularyToken:
    """text: in the alphabet of the tokenizer. score: the logarithm of a probability, or a rank."""

    text: str
    type: TokenType
    score: float = 0.0


@dataclass(slots=True)
class VocabularyTable:
    """Tokens by id. size: one more than the largest id that is allowed."""

    size: int
    _tokens: dict[int, VocabularyToken] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.size <= MAX_TOKENS:
            raise refusal("config.json", "vocab_size", f"{self.size}, expected 1 to {MAX_TOKENS}")

    def add(self, id: int, token: VocabularyToken, file: str) -> None:
        """Put a token at a free id. Raises ConvertError: the id is taken or too large, the text
        stands at another id, is empty or too long."""
        if id in self._tokens:
            taken = brief(self._tokens[id].text)
            raise refusal(file, brief(token.text), f"has the id {id}, which is {taken}")
        self._put(id, token, file)

    def replace(self, id: int, token: VocabularyToken, file: str) -> None:
        """Put a token at an id, whatever stood there. Raises ConvertError as add does."""
        before = self._tokens.pop(id, None)
        if before is not None:
            del self._ids[before.text]
        self._put(id, token, file)

    def find(self, text: str) -> int | None:
        """The id of a text."""
        return self._ids.get(text)

    def get(self, id: int) -> VocabularyToken | None:
        """The token at an id."""
        return self._tokens.get(id)

    def finished(self) -> list[VocabularyToken]:
        """All tokens from 0 to size; a hole becomes an unused [PADn]. Raises ConvertError."""
        if not self._tokens:
            raise refusal("tokenizer", "vocab", "no tokens")
        return [self._tokens.get(id) or self._padding(id) for id in range(self.size)]

    def _padding(self, id: int) -> VocabularyToken:
        text = f"[PAD{id}]"
        if text in self._ids:
            raise refusal(
                "tokenizer", text, f"id {id} has no token, and its filler's name is taken"
            )
        return VocabularyToken(text, TokenType.UNUSED, UNUSED_SCORE)

    def _put(self, id: int, token: VocabularyToken, file: str) -> None:
        name = brief(token.text)
        if id >= self.size:
            raise refusal(
                file, name, f"id {id}, but config.json makes the vocabulary {self.size} tokens"
            )
        if not token.text:
            raise refusal(file, f"id {id}", "a token without a text")
        try:
            length = len(token.text.encode())
        except UnicodeEncodeError:
            raise refusal(file, name, "contains half a surrogate pair") from None
        if length > MAX_TOKEN_BYTES:
            raise refusal(file, name, f"{length} bytes, more than {MAX_TOKEN_BYTES}")
        if token.text in self._ids:
            raise refusal(file, name, f"has the ids {self._ids[token.text]} and {id}")
        self._tokens[id] = token
        self._ids[token.text] = id


def token_metadata(tokens: list[VocabularyToken], scores: bool) -> tuple[MetadataValue, ...]:
    """Texts, types and, where the tokenizer uses them, scores."""
    texts = MetadataValue("tokenizer.ggml.tokens", "strings", [token.text for token in tokens])
    types = [int(token.type) for token in tokens]
    kinds = MetadataValue("tokenizer.ggml.token_type", "i32s", types)
    if not scores:
        return texts, kinds
    numbers = [token.score for token in tokens]
    return texts, MetadataValue("tokenizer.ggml.scores", "f32s", numbers), kinds
