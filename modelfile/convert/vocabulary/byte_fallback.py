"""BPE of characters with byte fallback, as a tokenizer.json made from SentencePiece holds it.

llama.cpp merges by the score of the result, while the file has an order of pairs. Both give the
same tokens if every pair that makes a token is listed and the pairs of a token are adjacent, which
is how such files are made; others are refused. Knows no special ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from modelfile.convert.files import TOKENIZER, brief, child, fault
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.vocabulary.added import added_tokens
from modelfile.convert.vocabulary.bpe import check_model, read_merges, read_vocab
from modelfile.convert.vocabulary.bpe_merges import Merge
from modelfile.convert.vocabulary.sentencepiece import (
    BYTES,
    SPACE,
    add_tokens,
    check_bytes,
    prefix_of,
    sentencepiece_metadata,
)
from modelfile.convert.vocabulary.steps import steps_of
from modelfile.convert.vocabulary.tokens import TokenType, VocabularyTable, VocabularyToken

_MAX_TOKEN_CHARS: Final = 1024  # characters; all the ways to cut a token in two are tried


def read_byte_fallback(
    files: Mapping[str, Path], tokenizer: Mapping[str, Any], table: VocabularyTable
) -> tuple[MetadataValue, ...]:
    """Fill the table and give the values but for the special ids. Raises ConvertError, OSError."""
    model = child(tokenizer, "model")
    check_model(model)
    vocabulary = read_vocab(model)
    check_bytes(vocabulary.__contains__, TOKENIZER)
    added = added_tokens(files, tokenizer)
    texts = vocabulary.keys() - {token.text for token in added} - set(BYTES)
    scores = merge_scores(texts, read_merges(model, vocabulary))
    unknown = model.get("unk_token")
    bytes_ = frozenset(BYTES)
    for text, id in vocabulary.items():
        kind = TokenType.BYTE if text in bytes_ else TokenType.NORMAL
        if text == unknown:
            kind = TokenType.UNKNOWN
        table.add(id, VocabularyToken(text, kind, scores.get(text, 0.0)), TOKENIZER)
    add_tokens(table, added)
    prefix, split = _spaces(tokenizer)
    if split:
        _check_words(texts)
    wanted = prefix_of(files)
    return sentencepiece_metadata("llama", table, prefix if wanted is None else wanted, False)


def merge_scores(texts: Iterable[str], merges: Sequence[Merge]) -> dict[str, float]:
    """A score for each text that is merged, the higher the earlier. Raises ConvertError when no
    scores do what the merges do."""
    scores = _ranks(merges)
    known, pairs = set(texts), set(merges)
    for text in known:
        if len(text) > _MAX_TOKEN_CHARS:
            raise fault("vocab", f"{brief(text)} is longer than {_MAX_TOKEN_CHARS} characters")
        for place in range(1, len(text)):
            pair = text[:place], text[place:]
            if pair not in pairs and pair[0] in known and pair[1] in known:
                message = f"{brief(' '.join(pair))} is missing, which llama.cpp would merge"
                raise fault("merges", message)
    return scores


def _ranks(merges: Sequence[Merge]) -> dict[str, float]:
    """The place of each text in the order, as a score. Runs of one character, which have a score
    in common, may be mixed. Raises ConvertError for others that are."""
    scores: dict[str, float] = {}
    last, tie = "", 0.0
    for rank, (first, second) in enumerate(merges):
        text = first + second
        if text != last:
            run = len(set(text)) == 1
            if text in scores and not (run and scores[text] == tie):
                raise fault("merges", f"those of {brief(text)} are not contiguous")
            if not (run and len(set(last)) == 1):
                tie = -float(rank)
            scores.setdefault(text, tie)
        last = text
    return scores


def _spaces(tokenizer: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a space is put before a text, and whether words are split at spaces."""
    prefix, split, escaped = False, False, False
    for step in (*steps_of(tokenizer, "normalizer"), *steps_of(tokenizer, "pre_tokenizer")):
        kind = step.get("type")
        if kind == "Prepend" and step.get("prepend") == SPACE:
            prefix = True
        elif kind == "Replace" and step.get("content") == SPACE:
            escaped = escaped or child(step, "pattern").get("String") == " "
        elif kind == "Metaspace" and step.get("replacement") == SPACE:
            never = step.get("prepend_scheme") == "never" or step.get("add_prefix_space") is False
            prefix, split, escaped = prefix or not never, step.get("split") is not False, True
        elif kind == "Split" and child(step, "pattern").get("String") == " ":
            continue  # after the spaces are escaped it finds none
        else:
            raise fault("normalizer", f"{brief(kind)} is not supported with byte_fallback")
    if not escaped:
        raise fault("normalizer", f"spaces do not become {SPACE}")
    return prefix, split


def _check_words(texts: Iterable[str]) -> None:
    """Raises ConvertError for a token over two words, which llama.cpp would use."""
    for text in texts:
        if SPACE in text[1:]:
            raise fault("vocab", f"{brief(text)} spans words, but they are split first")
