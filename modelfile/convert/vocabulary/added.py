"""The tokens that were added to a vocabulary, from the four files that may list them.

Knows no tokenizer model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from modelfile.convert.files import (
    MAX_CONFIG_BYTES,
    TOKENIZER,
    brief,
    child,
    flag,
    items,
    objects,
    read_object,
    refusal,
    token_id,
)
from modelfile.convert.vocabulary.tokens import MAX_TOKENS, VocabularyTable

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_ADDED: Final = "added_tokens.json"
# Added tokens of Command R, DeepSeek Coder and Gemma that are control tokens without saying so.
_CONTROL_TEXTS: Final = frozenset({"<pad>", "<mask>", "<2mass>", "[@BOS@]"})
_CONTROL_SHAPES: Final = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))


@dataclass(frozen=True, slots=True)
class AddedToken:
    """control: it stands for a role or an end and is no text. file: where it was found."""

    id: int
    text: str
    control: bool
    file: str


def tokenizer_config(files: Mapping[str, Path]) -> Mapping[str, Any]:
    """The object of tokenizer_config.json; empty where there is none. Raises ConvertError,
    OSError."""
    return read_object(files, TOKENIZER_CONFIG, MAX_CONFIG_BYTES * 8)


def added_tokens(files: Mapping[str, Path], tokenizer: Mapping[str, Any]) -> list[AddedToken]:
    """All of them by id, each once. tokenizer: the object of tokenizer.json, empty without it.

    Raises ConvertError when two files, or two lines of one, contradict each other; OSError.
    """
    found: dict[int, AddedToken] = {}
    ids: dict[str, int] = {}
    for token in _all(files, tokenizer):
        before = found.get(token.id)
        if before is not None and before.text != token.text:
            raise refusal(
                token.file,
                brief(token.text),
                f"has the id {token.id}, which is {brief(before.text)} in {before.file}",
            )
        if ids.setdefault(token.text, token.id) != token.id:
            raise refusal(
                token.file, brief(token.text), f"has the ids {ids[token.text]} and {token.id}"
            )
        if before is None or (token.control and not before.control):
            found[token.id] = token
    return [found[id] for id in sorted(found)]


def within(tokens: Iterable[AddedToken], table: VocabularyTable) -> list[AddedToken]:
    """The tokens but for control tokens beyond the end of the table, for which the model has no
    embedding: the text models of Gemma 3 list one for images."""
    return [token for token in tokens if token.id < table.size or not token.control]


def looks_control(text: str) -> bool:
    """Whether a token is a control token by its text alone."""
    if text in _CONTROL_TEXTS:
        return True
    return any(
        text.startswith(start) and text.endswith(end) and len(text) > len(start)
        for start, end in _CONTROL_SHAPES
    )


def _all(files: Mapping[str, Path], tokenizer: Mapping[str, Any]) -> Iterator[AddedToken]:
    listed = items(tokenizer, "added_tokens")
    _check_count(len(listed), TOKENIZER)
    for value in objects(listed, "added_tokens"):
        yield _token(value.get("id"), value, TOKENIZER)
    decoder = child(tokenizer_config(files), "added_tokens_decoder", TOKENIZER_CONFIG)
    _check_count(len(decoder), TOKENIZER_CONFIG)
    for key, value in decoder.items():
        if not isinstance(value, dict):
            raise refusal(TOKENIZER_CONFIG, key, f"{brief(value)}, expected an object")
        number = int(key) if key.isascii() and key.isdigit() and len(key) < 10 else key
        yield _token(number, value, TOKENIZER_CONFIG)
    added = read_object(files, _ADDED, MAX_CONFIG_BYTES * 8)
    _check_count(len(added), _ADDED)
    for text, id in added.items():
        yield _token(id, {"content": text}, _ADDED)


def _token(id: Any, value: Mapping[str, Any], file: str) -> AddedToken:
    text = value.get("content")
    if not isinstance(text, str) or not text:
        raise refusal(
            file, "content", f"{brief(text)}, expected the text of added token {brief(id)}"
        )
    control = bool(flag(value, "special", file)) or looks_control(text)
    return AddedToken(token_id(id, file, brief(text)), text, control, file)


def _check_count(count: int, file: str) -> None:
    if count > MAX_TOKENS:
        raise refusal(file, "added tokens", f"{count}, at most {MAX_TOKENS} are allowed")
