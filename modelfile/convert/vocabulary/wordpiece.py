"""WordPiece of BERT, from a tokenizer.json or a vocab.txt.

llama.cpp calls it "bert": a token that begins a word starts with ▁, the others without ##.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from modelfile.convert.files import (
    brief,
    child,
    fault,
    flag,
    read_text,
    refusal,
)
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.vocabulary.added import (
    TOKENIZER_CONFIG,
    added_tokens,
    tokenizer_config,
    within,
)
from modelfile.convert.vocabulary.bpe import fill_table, read_vocab
from modelfile.convert.vocabulary.tokens import (
    MAX_TOKENS,
    TokenType,
    VocabularyTable,
    VocabularyToken,
    token_metadata,
)

VOCABULARY: Final = "vocab.txt"
_CONTINUING: Final = "##"
_WORD_START: Final = "▁"
_CONTROL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def read_wordpiece(
    files: Mapping[str, Path], tokenizer: Mapping[str, Any], table: VocabularyTable
) -> tuple[MetadataValue, ...]:
    """Fill the table and give the values but for the special ids. tokenizer: empty where there
    is only a vocab.txt. Raises ConvertError, OSError."""
    lowercase, strip_accents = _normalizer(files, tokenizer)
    if tokenizer:
        model = child(tokenizer, "model")
        prefix = model.get("continuing_subword_prefix", _CONTINUING)
        if prefix != _CONTINUING:
            raise fault("continuing_subword_prefix", f"{brief(prefix)}, expected ##")
        fill_table(table, read_vocab(model), files, tokenizer)
    else:
        _fill_from_lines(table, files)
    tokens = [_phantom(token) for token in table.finished()]
    return (
        MetadataValue("tokenizer.ggml.model", "string", "bert"),
        MetadataValue("tokenizer.ggml.pre", "string", "default"),
        *token_metadata(tokens, scores=False),
        MetadataValue("tokenizer.ggml.normalizer.lowercase", "bool", lowercase),
        MetadataValue("tokenizer.ggml.normalizer.strip_accents", "bool", strip_accents),
    )


def _phantom(token: VocabularyToken) -> VocabularyToken:
    if token.type in (TokenType.CONTROL, TokenType.UNUSED):
        return token
    if token.text.startswith(_CONTINUING) and token.text != _CONTINUING:
        return replace(token, text=token.text[len(_CONTINUING) :])
    return replace(token, text=_WORD_START + token.text)


def _fill_from_lines(table: VocabularyTable, files: Mapping[str, Path]) -> None:
    lines = read_text(files, VOCABULARY).split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if len(lines) > MAX_TOKENS:
        raise refusal(VOCABULARY, "lines", f"{len(lines)}, at most {MAX_TOKENS} are allowed")
    added = {token.id: token for token in added_tokens(files, {})}
    for id, line in enumerate(lines):
        text = line.rstrip("\r")
        token = added.pop(id, None)
        if token is not None and token.text != text:
            message = f"has the id {id}, which is {brief(token.text)} in {token.file}"
            raise refusal(VOCABULARY, brief(text), message)
        control = text in _CONTROL or (token is not None and token.control)
        kind = TokenType.CONTROL if control else TokenType.NORMAL
        table.add(id, VocabularyToken(text, kind), VOCABULARY)
    for token in within(added.values(), table):
        kind = TokenType.CONTROL if token.control else TokenType.USER_DEFINED
        table.add(token.id, VocabularyToken(token.text, kind), token.file)


def _normalizer(files: Mapping[str, Path], tokenizer: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether letters become small, and whether they lose their accents. Raises ConvertError."""
    value = child(tokenizer, "normalizer")
    if value.get("type") not in (None, "BertNormalizer"):
        raise fault("normalizer", f"{brief(value['type'])}, expected BertNormalizer")
    lowercase = flag(value, "lowercase")
    accents = flag(value, "strip_accents")
    if not tokenizer:
        config = tokenizer_config(files)
        lowercase = flag(config, "do_lower_case", TOKENIZER_CONFIG)
        accents = flag(config, "strip_accents", TOKENIZER_CONFIG)
    small = lowercase if lowercase is not None else not tokenizer or bool(value)
    return small, small if accents is None else accents
