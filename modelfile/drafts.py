"""Whether a model can propose tokens for another one: both must have the same vocabulary."""

from __future__ import annotations

from typing import Any

from modelfile.errors import BuildError
from registry.formats.gguf import GgufHeader, LazyArray

_KEYS = ("tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens")


def check_draft(draft: GgufHeader, base: GgufHeader) -> None:
    """Refuse what cannot be a draft model of base by their headers. Raises BuildError."""
    if draft.is_embedding:
        raise BuildError("DRAFT names an embedding model, which cannot generate draft tokens")
    if draft.keeps_checkpoint:
        raise BuildError(
            "DRAFT names a quantized checkpoint, which only the backend torch can load"
        )
    if draft.vocabulary_size != base.vocabulary_size:
        raise BuildError(
            f"the draft model has {draft.vocabulary_size} tokens and the model"
            f" {base.vocabulary_size}: both need the same vocabulary"
        )


def check_vocabulary(draft: GgufHeader, base: GgufHeader) -> None:
    """Refuse a draft model whose token ids mean something else. Reads both vocabularies. Raises
    BuildError, InvalidGguf."""
    for key in _KEYS:
        if _value(draft, key) != _value(base, key):
            raise BuildError(
                f"the draft model's vocabulary differs from the model's: {key} differs"
            )


def _value(header: GgufHeader, key: str) -> Any:
    value = header.metadata.get(key)
    return value.load() if isinstance(value, LazyArray) else value
