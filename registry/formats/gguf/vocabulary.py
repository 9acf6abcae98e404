"""Rules on the vocabulary: llama.cpp aborts on duplicate tokens, and reads past the end of
malformed byte tokens, of a vocabulary without the tokens that its kind requires, and of one that
claims to have none, so these are refused here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from registry.errors import InvalidGguf, shown
from registry.formats.gguf.types import ARRAY, INT8, UINT8, VALUE_NAMES
from registry.formats.gguf.values import RawValue

MAX_TOKEN_BYTES = 4096
_PREFIX = "tokenizer.ggml."
_BYTE_TYPE = 6
_LAST_TYPE = 6
_BYTE_TOKEN = re.compile(rb"<0x[0-9A-F]{2}>")
_ARRAYS: Final = ("tokens", "merges", "scores", "token_type", "precompiled_charsmap")
_IDS: Final = ("bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id")
# The ids that llama.cpp takes where the file does not say them (llama-vocab.cpp, load).
_DEFAULT_IDS: Final = {
    "llama": {"bos": 1, "eos": 2, "unknown": 0},
    "bert": {"bos": 101, "unknown": 100, "seperator": 102, "padding": 0, "mask": 103},
    "gpt2": {},
    "hybriddna": {},
    "whitespace": {},
    "gemma4": {},
    "t5": {"eos": 1, "unknown": 2, "padding": 0},
    "rwkv": {},
    "plamo2": {"bos": 1, "eos": 2, "unknown": 0, "padding": 3},
}
_SPELLING: Final = ("llama", "plamo2")  # what they do not know, by bytes
_MERGING: Final = ("gpt2", "hybriddna", "whitespace", "gemma4")
_WITHOUT_MERGES: Final = "kimi-k2"  # a pre-tokenizer
# What llama.cpp knows (llama-vocab.cpp, load); the file of a gemma4 is not asked for it.
PRE_TOKENIZERS: Final = frozenset(
    """
    a.x-4.0 afmoe bailingmoe bailingmoe2 bloom chameleon chatglm-bpe codeshell cohere2moe command-r
    dbrx deepseek-coder deepseek-llm deepseek-r1-qwen deepseek-v3 default exaone exaone-moe exaone4
    f2llmv2 falcon falcon-h1 falcon3 gemma4 gigachat glm4 glm5 gpt-2 gpt-4o gpt3-finnish
    granite-docling granite-embed-multi-311m granite-embed-multi-97m grok-2 hunyuan hunyuan-dense
    hy_v4 jais jais-2 jina-de jina-es jina-v1-en jina-v2-code jina-v2-de jina-v2-es jina-v5-nano
    joyai-llm kanana2 kimi-k2 kormo laguna lfm2 llada-moe llama-bpe llama-v3 llama3 llama4 megrez
    mellum mellum2 midm-2.0 minerva-7b minicpm5 minimax-m2 modern-bert mpt olmo phi-2 pixtral
    poro-chat qwen2 qwen35 refact roberta-bpe sarvam-moe seed-coder smaug-bpe smollm solar-open
    spark2_5 stablelm2 starcoder superbpe talkie tekken tiny_aya trillion ufakzeka viking whitespace
    youtu
    """.split()  # noqa: SIM905 (a hundred lines as a list)
)
# Of every model that is named so, whatever it is, the loader looks these up.
_PHI3: Final = re.compile(rb"phi-?3", re.IGNORECASE)
_PHI3_TOKENS: Final = frozenset((b"</s>", b"<unk>", b"<s>", b"<|endoftext|>"))
# What unknown words become: without it, the loader or the first text ends the process.
_NEEDED_IDS: Final = {"bert": ("unknown", "seperator"), "t5": ("unknown",), "llama": ("unknown",)}


def check_vocabulary(raw: Mapping[str, RawValue]) -> None:
    """Check the tokenizer's arrays against each other. Raises InvalidGguf."""
    arrays = {name: _array(raw, name) for name in _ARRAYS}
    tokens = arrays["tokens"]
    if tokens is None:
        return
    _check_tokens(tokens)
    _check_kind(raw, tokens, arrays["token_type"] or ())
    for name in ("scores", "token_type"):
        items = arrays[name]
        if items is not None and len(items) != len(tokens):
            _refuse(name, f"{len(items)} elements, expected {len(tokens)}, one for each token")
    _check_types(tokens, arrays["token_type"])
    if arrays["scores"] is not None and not all(map(math.isfinite, arrays["scores"])):
        _refuse("scores", "a score is not a finite number")
    _check_merges(arrays["merges"])
    if arrays["precompiled_charsmap"] is not None and len(arrays["precompiled_charsmap"]) < 4:
        _refuse("precompiled_charsmap", "shorter than 4 bytes")
    _check_ids(raw, len(tokens))


def _array(raw: Mapping[str, RawValue], name: str) -> Sequence[Any] | None:
    item = raw.get(_PREFIX + name)
    if item is None:
        return None
    if name == "precompiled_charsmap" and (
        item.kind != ARRAY or item.value.kind not in (INT8, UINT8)
    ):
        _refuse(name, f"of type {VALUE_NAMES[item.kind]}, expected an array of int8")
    items: Sequence[Any] = item.value.items
    return items


def _check_kind(raw: Mapping[str, RawValue], tokens: Sequence[bytes], types: Sequence[int]) -> None:
    """The kind of tokenizer is one that has a vocabulary, and what it stands on is there."""
    item = raw.get(_PREFIX + "model")
    if item is None:
        return
    kind = item.value.decode("utf-8", "replace")
    if kind not in _DEFAULT_IDS:
        _refuse("model", f"{shown(kind)}, expected one of {', '.join(_DEFAULT_IDS)}")
    if kind == "bert" and _BYTE_TYPE in types:
        _refuse("token_type", "has tokens of single bytes, which the tokenizer bert cannot write")
    if kind in _SPELLING:
        _check_bytes(kind, tokens, types)
    title = raw.get("general.name")
    if title is not None and _PHI3.search(title.value):
        missing = _PHI3_TOKENS.difference(tokens)
        if missing:
            _refuse("tokens", f"no {min(missing).decode()}, which a general.name with phi-3 needs")
    if kind in _MERGING:
        _check_merging(raw, kind)
    for name in _NEEDED_IDS.get(kind, ()):
        given = raw.get(f"{_PREFIX}{name}_token_id")
        number = _DEFAULT_IDS[kind].get(name) if given is None else int(given.value)
        if number is None or number >= len(tokens):
            _refuse(
                f"{name}_token_id",
                f"{number}, expected a token below {len(tokens)}, which the tokenizer {kind} needs",
            )


def _check_merging(raw: Mapping[str, RawValue], kind: str) -> None:
    item = raw.get(_PREFIX + "pre")
    pre = item.value.decode("utf-8", "replace") if item is not None else ""
    if pre and pre not in PRE_TOKENIZERS and kind != "gemma4":
        _refuse("pre", f"{shown(pre)}, expected a pre-tokenizer that llama.cpp knows")
    if _PREFIX + "merges" not in raw and pre != _WITHOUT_MERGES:
        _refuse("merges", f"missing, which the tokenizer {kind} needs")


def _check_bytes(kind: str, tokens: Sequence[bytes], types: Sequence[int]) -> None:
    """Every byte has a token, as <0x0A> or, for llama, as itself: text that has no other ends the
    process. Where llama has no room for all, the model was made for a few words."""
    known = set(tokens)
    if kind != "llama":
        pairs = zip(tokens, types, strict=False)
        known = {token for token, type in pairs if type == _BYTE_TYPE}
    elif len(known) <= 256:
        return
    for byte in range(256):
        as_itself = kind == "llama" and bytes([byte]) in known
        if b"<0x%02X>" % byte not in known and not as_itself:
            _refuse("tokens", f"no token <0x{byte:02X}>, which the tokenizer {kind} needs")


def _check_tokens(tokens: Sequence[bytes]) -> None:
    if not tokens:
        _refuse("tokens", "empty, expected at least one token")
    max_bytes = max(map(len, tokens))
    if max_bytes > MAX_TOKEN_BYTES:
        _refuse("tokens", f"a token of {max_bytes} bytes, at most {MAX_TOKEN_BYTES} are allowed")
    _check_text("tokens", tokens)
    if len(set(tokens)) == len(tokens):
        return
    seen: dict[bytes, int] = {}
    for number, token in enumerate(tokens):
        first = seen.setdefault(token, number)
        # llama.cpp gives each empty token a name of its own.
        if token and first != number:
            _refuse("tokens", f"tokens {first} and {number} are both {token[:40]!r}")


def _check_text(name: str, items: Sequence[bytes]) -> None:
    """All are UTF-8. One decode over all is 20 times cheaper than one for each; the separator
    keeps a character from spanning two items."""
    try:
        b"\n".join(items).decode("utf-8")
    except UnicodeDecodeError:
        for number, item in enumerate(items):
            try:
                item.decode("utf-8")
            except UnicodeDecodeError:
                _refuse(name, f"element {number} is not UTF-8: {item[:40]!r}")


def _check_types(tokens: Sequence[bytes], types: Sequence[int] | None) -> None:
    if types is None:
        return
    if min(types) < 0 or max(types) > _LAST_TYPE:
        _refuse("token_type", f"{min(types)} to {max(types)}, expected 0 to {_LAST_TYPE}")
    for token, kind in zip(tokens, types, strict=True):
        if kind == _BYTE_TYPE and _BYTE_TOKEN.fullmatch(token) is None:
            _refuse("tokens", f"byte token {token[:40]!r}, expected the form <0x0A>")


def _check_merges(merges: Sequence[bytes] | None) -> None:
    if not merges:
        return
    _check_text("merges", merges)
    for number, merge in enumerate(merges):
        if not 0 < merge.find(b" ", 1) < len(merge) - 1:
            _refuse("merges", f"element {number} is {merge[:40]!r}, expected two parts")
    if max(map(len, merges)) > 2 * MAX_TOKEN_BYTES + 1:
        _refuse("merges", f"a merge longer than {2 * MAX_TOKEN_BYTES + 1} bytes")


def _check_ids(raw: Mapping[str, RawValue], size: int) -> None:
    for name in _IDS:
        item = raw.get(_PREFIX + name)
        if item is not None and item.value >= size:
            _refuse(name, f"{item.value}, expected one below {size}, the number of tokens")


def _refuse(name: str, message: str) -> None:
    raise InvalidGguf(f"{_PREFIX}{name}: {message}")
