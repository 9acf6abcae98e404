"""The tokenizer of a SentencePiece file, and of a tokenizer.json that was made from one.

llama.cpp calls the BPE ones "llama" and the unigram ones "t5". Knows no special ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from modelfile.convert.files import brief, flag, read_bytes, refusal
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.vocabulary.added import (
    TOKENIZER_CONFIG,
    AddedToken,
    added_tokens,
    tokenizer_config,
    within,
)
from modelfile.convert.vocabulary.sentencepiece_file import parse_sentencepiece
from modelfile.convert.vocabulary.tokens import (
    ADDED_SCORE,
    TokenType,
    VocabularyTable,
    VocabularyToken,
    token_metadata,
)

NAMES: Final = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
SPACE: Final = "▁"
BYTES: Final = tuple(f"<0x{byte:02X}>" for byte in range(256))
_FIXED: Final = (TokenType.NORMAL, TokenType.BYTE)


def read_sentencepiece(
    files: Mapping[str, Path], name: str, tokenizer: Mapping[str, Any], table: VocabularyTable
) -> tuple[MetadataValue, ...]:
    """Fill the table and give the values but for the special ids. Raises ConvertError, OSError."""
    model = parse_sentencepiece(read_bytes(files, name), name)
    for id, piece in enumerate(model.pieces):
        table.add(id, piece, name)
    add_tokens(table, added_tokens(files, tokenizer))
    if model.bpe:
        check_bytes(lambda text: table.find(text) is not None, name)
    elif model.byte_fallback:
        raise refusal(name, "byte_fallback", "llama.cpp has no unigram model with byte fallback")
    prefix = prefix_of(files)
    values = sentencepiece_metadata(
        "llama" if model.bpe else "t5",
        table,
        model.add_dummy_prefix if prefix is None else prefix,
        model.remove_extra_whitespaces,
    )
    if model.charsmap is None or model.bpe:
        return values
    charsmap = MetadataValue("tokenizer.ggml.precompiled_charsmap", "u8s", model.charsmap)
    return (*values, charsmap)


def sentencepiece_metadata(
    model: str, table: VocabularyTable, space_prefix: bool, remove_extra_whitespaces: bool
) -> tuple[MetadataValue, ...]:
    """The values of a filled table. model: "llama" or "t5". Raises ConvertError."""
    return (
        MetadataValue("tokenizer.ggml.model", "string", model),
        MetadataValue("tokenizer.ggml.pre", "string", "default"),
        *token_metadata(table.finished(), scores=True),
        MetadataValue("tokenizer.ggml.add_space_prefix", "bool", space_prefix),
        MetadataValue("tokenizer.ggml.remove_extra_whitespaces", "bool", remove_extra_whitespaces),
    )


def prefix_of(files: Mapping[str, Path]) -> bool | None:
    """Whether tokenizer_config.json puts a space before a text; None where it does not say.
    Raises ConvertError, OSError."""
    return flag(tokenizer_config(files), "add_prefix_space", TOKENIZER_CONFIG)


def check_bytes(has: Callable[[str], bool], file: str) -> None:
    """Raises ConvertError when a byte has no token: llama.cpp's "llama" would end its process at
    a character that is no token."""
    missing = next((text for text in BYTES if not has(text)), None)
    if missing is not None:
        raise refusal(file, "byte_fallback", f"there is no token {missing}, which llama.cpp needs")


def add_tokens(table: VocabularyTable, added: list[AddedToken]) -> None:
    """Put the added tokens into a table of pieces; they may take the place of unused, control
    and user-defined ones. Raises ConvertError: one would take that of a piece of text."""
    for token in within(added, table):
        before = table.get(token.id)
        same = before is not None and before.text == token.text
        if before is not None and not same and before.type in _FIXED:
            raise refusal(token.file, brief(token.text), f"id {token.id} is {brief(before.text)}")
        if same and before is not None and before.type in (TokenType.UNKNOWN, TokenType.BYTE):
            continue
        kind = TokenType.CONTROL if token.control else TokenType.USER_DEFINED
        # llama.cpp compares user-defined tokens with the text before spaces are escaped.
        text = token.text if token.control else token.text.replace(SPACE, " ")
        table.replace(token.id, VocabularyToken(text, kind, ADDED_SCORE), token.file)
