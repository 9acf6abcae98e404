"""Byte-level BPE of a tokenizer.json: tokens, merges and the pre-tokenizer.

Knows no special ids. llama.cpp calls this model "gpt2".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from modelfile.convert.files import TOKENIZER, brief, child, fault, flag, items, token_id
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.vocabulary.added import added_tokens, within
from modelfile.convert.vocabulary.bpe_merges import Merge, first_unreachable
from modelfile.convert.vocabulary.pretokenizers import (
    ignores_merges,
    joins_digits,
    pre_tokenizer_id,
)
from modelfile.convert.vocabulary.steps import steps_of
from modelfile.convert.vocabulary.tokens import (
    MAX_TOKENS,
    TokenType,
    VocabularyTable,
    VocabularyToken,
    token_metadata,
)

_UNSUPPORTED: Final = ("continuing_subword_prefix", "end_of_word_suffix", "dropout")
# llama.cpp composes no characters; text that is composed already, as nearly all is, stays as it is.
_NORMALIZER: Final = "NFC"


def read_byte_level(
    files: Mapping[str, Path], tokenizer: Mapping[str, Any], table: VocabularyTable
) -> tuple[MetadataValue, ...]:
    """Fill the table and give the values but for the special ids. Raises ConvertError, OSError."""
    model = child(tokenizer, "model")
    check_model(model)
    for step in steps_of(tokenizer, "normalizer"):
        if step.get("type") != _NORMALIZER:
            kind = brief(step.get("type"))
            raise fault("normalizer", f"{kind} is not supported, only {_NORMALIZER}")
    vocabulary = read_vocab(model)
    fill_table(table, vocabulary, files, tokenizer)
    merges = read_merges(model, vocabulary)
    pre = _pre_tokenizer(tokenizer, table, vocabulary, merges)
    return (
        MetadataValue("tokenizer.ggml.model", "string", "gpt2"),
        MetadataValue("tokenizer.ggml.pre", "string", pre),
        *token_metadata(table.finished(), scores=False),
        MetadataValue("tokenizer.ggml.merges", "strings", [f"{a} {b}" for a, b in merges]),
    )


def check_model(model: Mapping[str, Any]) -> None:
    """Raises ConvertError for a kind of BPE that llama.cpp cannot run."""
    for key in _UNSUPPORTED:
        if model.get(key):
            raise fault(key, f"{brief(model[key])} is not supported")


def read_vocab(model: Mapping[str, Any]) -> dict[str, int]:
    """Ids by token. Raises ConvertError."""
    vocabulary = child(model, "vocab")
    if not 0 < len(vocabulary) <= MAX_TOKENS:
        raise fault("vocab", f"{len(vocabulary)} tokens, expected 1 to {MAX_TOKENS}")
    return {
        text: token_id(id, TOKENIZER, f"vocab: {brief(text)}") for text, id in vocabulary.items()
    }


def fill_table(
    table: VocabularyTable,
    vocabulary: Mapping[str, int],
    files: Mapping[str, Path],
    tokenizer: Mapping[str, Any],
) -> None:
    """Put the vocabulary and the added tokens into the table. Raises ConvertError, OSError."""
    added = {token.id: token for token in added_tokens(files, tokenizer)}
    for text, id in vocabulary.items():
        if id not in added:
            table.add(id, VocabularyToken(text, TokenType.NORMAL), TOKENIZER)
        elif added[id].text != text:
            other = f"{brief(added[id].text)} in {added[id].file}"
            raise fault(f"vocab: {brief(text)}", f"has the id {id}, which is {other}")
    for token in within(added.values(), table):
        kind = TokenType.CONTROL if token.control else TokenType.USER_DEFINED
        table.add(token.id, VocabularyToken(token.text, kind), token.file)


def read_merges(model: Mapping[str, Any], vocabulary: Mapping[str, int]) -> list[Merge]:
    """The merges, first come first merged; as pairs or as texts with one space. Raises
    ConvertError: one is no pair, occurs twice or is of no tokens."""
    listed = items(model, "merges")
    if len(listed) > MAX_TOKENS * 4:
        raise fault("merges", f"{len(listed)}, at most {MAX_TOKENS * 4} are allowed")
    merges = [_pair(merge) for merge in listed]
    seen: set[Merge] = set()
    for merge in merges:
        if merge in seen:
            raise fault("merges", f"{brief(' '.join(merge))} occurs twice")
        seen.add(merge)
        missing = next((part for part in _parts(merge) if part not in vocabulary), None)
        if missing is not None:
            text = brief(" ".join(merge))
            raise fault("merges", f"{text} needs {brief(missing)}, which is not a token")
    return merges


def _parts(merge: Merge) -> Iterable[str]:
    return merge[0], merge[1], merge[0] + merge[1]


def _pair(merge: Any) -> Merge:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    sound = isinstance(parts, list) and len(parts) == 2
    if not sound or not all(isinstance(part, str) and part for part in parts):
        raise fault("merges", f"{brief(merge)}, expected two tokens")
    return parts[0], parts[1]


def _pre_tokenizer(
    tokenizer: Mapping[str, Any],
    table: VocabularyTable,
    vocabulary: Mapping[str, int],
    merges: list[Merge],
) -> str:
    """The id. Raises ConvertError, also when llama.cpp takes whole words where the file does not,
    or the other way round, and that changes tokens."""
    ignored = bool(flag(child(tokenizer, "model", TOKENIZER), "ignore_merges"))
    id = pre_tokenizer_id(tokenizer, lambda text: table.find(text) is not None, ignored)
    if ignores_merges(id) != ignored:
        added = {token for token in vocabulary if _is_added(table, vocabulary[token])}
        lost = first_unreachable((token for token in vocabulary if token not in added), merges)
        if lost is not None:
            message = f"{str(ignored).lower()}, but llama.cpp's {id} does the opposite"
            raise fault("ignore_merges", f"{message} and the merges do not make {brief(lost)}")
    for first, second in merges:
        if " " in first or " " in second:
            raise fault("merges", f"{brief(first + ' ' + second)} has a space in a token")
        if joins_digits(id) and (first + second).isdecimal():
            message = f"{brief(first + second)} is a token of digits, which {id} would make"
            raise fault("merges", message)
    return id


def _is_added(table: VocabularyTable, id: int) -> bool:
    token = table.get(id)
    return token is not None and token.type is not TokenType.NORMAL
