"""Byte-level BPE in the two files that preceded tokenizer.json: vocab.json and merges.txt.

They do not say how text is split; the class that tokenizer_config.json names does. Owns which
classes are known. Gives the object of the tokenizer.json that the class makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from modelfile.convert.files import (
    MAX_TOKENIZER_BYTES,
    brief,
    flag,
    read_object,
    read_text,
    refusal,
)
from modelfile.convert.vocabulary.added import TOKENIZER_CONFIG, tokenizer_config
from modelfile.convert.vocabulary.pretokenizers import GPT2, QWEN2
from modelfile.convert.vocabulary.tokens import MAX_TOKENS
from modelfile.errors import ConvertError

VOCAB: Final = "vocab.json"
MERGES: Final = "merges.txt"
_CLASS: Final = "tokenizer_class"
_BYTES: Final = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
# By the name without the word Fast. Source: the modules of these classes in transformers.
_EXPRESSIONS: Final[Mapping[str, tuple[str, str | None]]] = {
    "Qwen2Tokenizer": (QWEN2, "NFC"),
    "GPT2Tokenizer": (GPT2, None),
}


def tokenizer_from_vocab_merges(files: Mapping[str, Path]) -> Mapping[str, Any]:
    """The object of a tokenizer.json; empty where the two files are not there. Raises
    ConvertError, naming the file, when one is missing or the class is not known; OSError."""
    if VOCAB not in files and MERGES not in files:
        return {}
    for name, other in ((VOCAB, MERGES), (MERGES, VOCAB)):
        if name not in files:
            raise ConvertError(f"{other} is there without {name}")
    config = tokenizer_config(files)
    named = config.get(_CLASS)
    known = _EXPRESSIONS.get(named.removesuffix("Fast")) if isinstance(named, str) else None
    if known is None:
        raise refusal(
            TOKENIZER_CONFIG,
            _CLASS,
            f"{brief(named)} does not say how {VOCAB} splits text; known are "
            f"{' and '.join(_EXPRESSIONS)}. Save the model with a tokenizer.json",
        )
    if flag(config, "add_prefix_space", TOKENIZER_CONFIG):
        raise refusal(TOKENIZER_CONFIG, "add_prefix_space", "true, which llama.cpp cannot do")
    expression, normalizer = known
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated"}
    return {
        "model": {
            "type": "BPE",
            "vocab": read_object(files, VOCAB, MAX_TOKENIZER_BYTES),
            "merges": _merges(files),
        },
        "normalizer": None if normalizer is None else {"type": normalizer},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, _BYTES]},
    }


def _merges(files: Mapping[str, Path]) -> list[str]:
    """The lines of merges.txt but for its version and empty ones. Raises ConvertError, OSError."""
    lines = read_text(files, MERGES).split("\n")
    if len(lines) > MAX_TOKENS * 4:
        raise ConvertError(f"{MERGES} has {len(lines)} lines, more than {MAX_TOKENS * 4}")
    first = 1 if lines[0].startswith("#version") else 0
    return [line.removesuffix("\r") for line in lines[first:] if line.strip()]
