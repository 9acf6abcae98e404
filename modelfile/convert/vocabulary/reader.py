"""From the files of a Hugging Face folder to the tokenizer of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modelfile.convert.files import MAX_TOKENIZER_BYTES, TOKENIZER, brief, child, fault, read_object
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.vocabulary.bpe import read_byte_level
from modelfile.convert.vocabulary.byte_fallback import read_byte_fallback
from modelfile.convert.vocabulary.chat_templates import chat_template_metadata
from modelfile.convert.vocabulary.sentencepiece import NAMES, read_sentencepiece
from modelfile.convert.vocabulary.slow_tokenizer import MERGES, VOCAB, tokenizer_from_vocab_merges
from modelfile.convert.vocabulary.special import special_metadata
from modelfile.convert.vocabulary.tokens import VocabularyTable
from modelfile.convert.vocabulary.unigram import read_unigram
from modelfile.convert.vocabulary.wordpiece import VOCABULARY, read_wordpiece
from modelfile.errors import ConvertError


def read_vocabulary(files: Mapping[str, Path], vocabulary_size: int) -> tuple[MetadataValue, ...]:
    """All tokenizer.* values of a checkpoint. files: by their names in its folder.
    vocabulary_size: the rows of the embedding; ids without a token become unused ones.

    Raises ConvertError, naming the file and the field, when a file is damaged, contradicts
    another, or asks for what llama.cpp cannot do; OSError.
    """
    tokenizer = read_object(files, TOKENIZER, MAX_TOKENIZER_BYTES)
    if not tokenizer and not any(name in files for name in (*NAMES, VOCABULARY)):
        tokenizer = tokenizer_from_vocab_merges(files)
    table = VocabularyTable(vocabulary_size)
    values = _model(files, tokenizer, table)
    return (
        *values,
        *special_metadata(files, tokenizer, table, byte_level=values[0].value == "gpt2"),
        *chat_template_metadata(files),
    )


def _model(
    files: Mapping[str, Path], tokenizer: Mapping[str, Any], table: VocabularyTable
) -> tuple[MetadataValue, ...]:
    model = child(tokenizer, "model")
    kind = model.get("type")
    if kind == "WordPiece" or (not tokenizer and VOCABULARY in files):
        return read_wordpiece(files, tokenizer, table)
    if kind == "BPE" and not model.get("byte_fallback"):
        return read_byte_level(files, tokenizer, table)
    if kind == "Unigram":
        return read_unigram(files, tokenizer, table)
    name = next((name for name in NAMES if name in files), None)
    if name is not None:
        return read_sentencepiece(files, name, tokenizer, table)
    if kind == "BPE":
        return read_byte_fallback(files, tokenizer, table)
    if not tokenizer:
        known = ", ".join((TOKENIZER, *NAMES, VOCABULARY, f"{VOCAB} with {MERGES}"))
        raise ConvertError(f"no tokenizer beside the weights; expected one of {known}")
    raise fault("model", f"type {brief(kind)} is not supported")
