"""The SentencePiece file tokenizer.model: pieces, kind of model, normalization.

Knows nothing of GGUF. Source: sentencepiece_model.proto of the sentencepiece library.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

from modelfile.convert.files import brief, refusal
from modelfile.convert.vocabulary.protobuf import Wire, fields
from modelfile.convert.vocabulary.tokens import MAX_TOKENS, TokenType, VocabularyToken

MAX_CHARSMAP_BYTES: Final = 16 << 20
_PIECES: Final = 1
_TRAINER: Final = 2
_NORMALIZER: Final = 3
_UNIGRAM: Final = 1
_BPE: Final = 2
_TYPES: Final = frozenset(int(kind) for kind in TokenType)


@dataclass(frozen=True, slots=True)
class SentencePiece:
    """bpe: else a unigram model. charsmap: the compiled normalization, None for none."""

    pieces: tuple[VocabularyToken, ...]
    bpe: bool
    byte_fallback: bool
    charsmap: bytes | None
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool


def parse_sentencepiece(content: bytes, file: str) -> SentencePiece:
    """The model that the bytes hold. file: its name in messages. Raises ConvertError."""
    pieces: list[VocabularyToken] = []
    trainer: dict[int, Wire] = {}
    normalizer: dict[int, Wire] = {}
    try:
        for number, value in fields(content):
            if number == _PIECES:
                pieces.append(_piece(_message(value), len(pieces), file))
            elif number == _TRAINER:
                trainer.update(fields(_message(value)))
            elif number == _NORMALIZER:
                normalizer.update(fields(_message(value)))
            if len(pieces) > MAX_TOKENS:
                raise refusal(file, "pieces", f"more than {MAX_TOKENS}")
        return _model(tuple(pieces), trainer, normalizer, file)
    except ValueError as error:
        raise refusal(file, "SentencePiece", str(error)) from None


def _model(
    pieces: tuple[VocabularyToken, ...],
    trainer: dict[int, Wire],
    normalizer: dict[int, Wire],
    file: str,
) -> SentencePiece:
    if not pieces:
        raise refusal(file, "pieces", "none; this is not a SentencePiece model")
    kind = trainer.get(3, _UNIGRAM)
    if kind not in (_UNIGRAM, _BPE):
        raise refusal(file, "model_type", f"{kind!r}, expected 1 (unigram) or 2 (BPE)")
    if trainer.get(24):
        raise refusal(file, "treat_whitespace_as_suffix", "true is not supported")
    if not normalizer.get(5, 1):
        raise refusal(file, "escape_whitespaces", "false is not supported")
    charsmap = _message(normalizer.get(2, b""))
    if len(charsmap) > MAX_CHARSMAP_BYTES:
        raise refusal(file, "precompiled_charsmap", f"more than {MAX_CHARSMAP_BYTES} bytes")
    return SentencePiece(
        pieces,
        kind == _BPE,
        bool(trainer.get(35)),
        charsmap or None,
        bool(normalizer.get(3, 1)),
        bool(normalizer.get(4, 1)),
    )


def _piece(message: bytes, id: int, file: str) -> VocabularyToken:
    text, score, kind = "", 0.0, int(TokenType.NORMAL)
    for number, value in fields(message):
        if number == 1:
            text = _message(value).decode("utf-8")
        elif number == 2:
            score = _float(value)
        elif number == 3 and isinstance(value, int):
            kind = value
    if kind not in _TYPES or not math.isfinite(score):
        raise refusal(
            file, f"piece {id}", f"{brief(text)} has the type {kind} and the score {score}"
        )
    return VocabularyToken(text, TokenType(kind), score)


def _message(value: Wire) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"the number {value} where a message belongs")
    return value


def _float(value: Wire) -> float:
    if not isinstance(value, bytes) or len(value) != 4:
        raise ValueError("a score that is not a 32-bit number")
    return float(struct.unpack("<f", value)[0])
