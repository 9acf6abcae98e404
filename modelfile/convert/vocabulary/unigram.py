"""The unigram model of a tokenizer.json, such as those of T5 and XLM-RoBERTa.

llama.cpp calls it "t5". Knows no special ids.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from modelfile.convert.files import TOKENIZER, brief, child, fault, items
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.vocabulary.added import added_tokens
from modelfile.convert.vocabulary.sentencepiece import SPACE, add_tokens, sentencepiece_metadata
from modelfile.convert.vocabulary.sentencepiece_file import MAX_CHARSMAP_BYTES
from modelfile.convert.vocabulary.steps import steps_of
from modelfile.convert.vocabulary.tokens import (
    MAX_TOKENS,
    TokenType,
    VocabularyTable,
    VocabularyToken,
)

_SQUEEZED: Final = " {2,}"


def read_unigram(
    files: Mapping[str, Path], tokenizer: Mapping[str, Any], table: VocabularyTable
) -> tuple[MetadataValue, ...]:
    """Fill the table and give the values but for the special ids. Raises ConvertError, OSError."""
    model = child(tokenizer, "model")
    if model.get("byte_fallback"):
        raise fault("byte_fallback", "llama.cpp has no unigram model with byte fallback")
    pieces = items(model, "vocab")
    if not 0 < len(pieces) <= MAX_TOKENS:
        raise fault("vocab", f"{len(pieces)} pieces, expected 1 to {MAX_TOKENS}")
    for id, piece in enumerate(pieces):
        table.add(id, _piece(piece, id == model.get("unk_id")), TOKENIZER)
    add_tokens(table, added_tokens(files, tokenizer))
    charsmap, squeezed = _normalizer(tokenizer)
    prefix, words = _pre_tokenizer(tokenizer)
    values = sentencepiece_metadata("t5", table, prefix, squeezed or words)
    if charsmap is None:
        return values
    return (*values, MetadataValue("tokenizer.ggml.precompiled_charsmap", "u8s", charsmap))


def _piece(piece: Any, unknown: bool) -> VocabularyToken:
    if not isinstance(piece, list) or len(piece) != 2 or not isinstance(piece[0], str):
        raise fault("vocab", f"{brief(piece)}, expected a piece and its score")
    score = piece[1]
    if type(score) not in (int, float) or not math.isfinite(score):
        raise fault("vocab", f"the score of {brief(piece[0])} is {brief(score)}, expected a number")
    return VocabularyToken(
        piece[0], TokenType.UNKNOWN if unknown else TokenType.NORMAL, float(score)
    )


def _normalizer(tokenizer: Mapping[str, Any]) -> tuple[bytes | None, bool]:
    """The compiled normalization, and whether several spaces become one."""
    charsmap, squeezed = None, False
    for step in steps_of(tokenizer, "normalizer"):
        kind = step.get("type")
        if kind == "Precompiled" and charsmap is None:
            charsmap = _charsmap(step.get("precompiled_charsmap"))
        elif kind == "Replace" and child(step, "pattern").get("Regex") == _SQUEEZED:
            squeezed = True
        elif kind != "Strip":
            raise fault("normalizer", f"{brief(kind)} is not supported for unigram models")
    return charsmap, squeezed


def _charsmap(text: Any) -> bytes | None:
    if not isinstance(text, str) or len(text) > 2 * MAX_CHARSMAP_BYTES:
        raise fault("precompiled_charsmap", f"{brief(text)}, expected base64")
    try:
        return base64.b64decode(text, validate=True) or None
    except binascii.Error as error:
        raise fault("precompiled_charsmap", f"not base64: {error}") from None


def _pre_tokenizer(tokenizer: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a space is put before a text, and whether only words count."""
    prefix, words = False, False
    for step in steps_of(tokenizer, "pre_tokenizer"):
        kind = step.get("type")
        if kind == "WhitespaceSplit":
            words = True
        elif kind == "Metaspace" and step.get("replacement") == SPACE:
            never = step.get("prepend_scheme") == "never" or step.get("add_prefix_space") is False
            prefix = not never
        else:
            raise fault("pre_tokenizer", f"{brief(kind)} is not supported for unigram models")
    return prefix, words
