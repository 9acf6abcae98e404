"""Fill-in-the-middle (FIM): the tokens of a vocabulary that mark prefix, suffix and middle.

A file names them by id; otherwise they are found by the names in the published families. Knows no
prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from registry.formats.gguf.types import ARRAY, STRING, UINT32
from registry.formats.gguf.values import RawValue

_NAMES: Final = {
    "pre": ("<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<｜fim▁begin｜>", "▁<PRE>", "<PRE>",
            "<|code_prefix|>", "<|prefix|>", "[PREFIX]", "<[fim-prefix]>"),
    "suf": ("<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<｜fim▁hole｜>", "▁<SUF>", "<SUF>",
            "<|code_suffix|>", "<|suffix|>", "[SUFFIX]", "<[fim-suffix]>"),
    "mid": ("<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<｜fim▁end｜>", "▁<MID>", "<MID>",
            "<|code_middle|>", "<|middle|>", "<[fim-middle]>"),
    "pad": ("<|fim_pad|>", "<fim_pad>", "<fim-pad>"),
    "rep": ("<|repo_name|>", "<|fim_repo|>", "<repo_name>", "<reponame>", "<fim-repo>", "<REPO>"),
    "sep": ("<|file_sep|>", "<file_sep>", "<|file_separator|>"),
    "eot": ("▁<EOT>", "<EOT>"),
}  # fmt: skip
"""Of Qwen, StarCoder, Granite, DeepSeek, Code Llama, GLM, Codestral, Seed-Coder, CodeGemma."""
_ROLES: Final = {name.encode(): role for role, names in _NAMES.items() for name in names}
_KEYS: Final = {
    "pre": ("fim_pre_token_id", "prefix_token_id"),
    "suf": ("fim_suf_token_id", "suffix_token_id"),
    "mid": ("fim_mid_token_id", "middle_token_id"),
    **{role: (f"fim_{role}_token_id",) for role in ("pad", "rep", "sep")},
}
"""After tokenizer.ggml., the older one last."""
_WORDS: Final = {"pre": "prefix", "suf": "suffix", "mid": "middle"}
_SUFFIX_FIRST: Final = (b"[PREFIX]", b"<[fim-prefix]>")
_NO_MIDDLE: Final = b"[PREFIX]"


@dataclass(frozen=True, slots=True)
class FimTokens:
    """ids: by role; pre, suf and mid stand before the prefix, the suffix and what is filled in, rep
    and sep before the names of a repository and of its files. ends: texts of tokens that say that
    the middle is whole. missing: what the model would need, in words. suffix_first: what its
    family was trained with."""

    ids: Mapping[str, int] = field(default_factory=dict)
    ends: tuple[str, ...] = ()
    missing: tuple[str, ...] = tuple(_WORDS.values())
    suffix_first: bool = False


def fim_tokens_of(raw: Mapping[str, RawValue]) -> FimTokens:
    """The tokens that fill in the middle, by the metadata of a file."""
    tokens = _tokens(raw)
    known = [(token, at) for at, token in enumerate(tokens) if token in _ROLES]
    ids = {_ROLES[token]: at for token, at in reversed(known)}
    for role, keys in _KEYS.items():
        named = next((item for key in keys if (item := raw.get(f"tokenizer.ggml.{key}"))), None)
        if named is not None and named.kind == UINT32 and named.value < (len(tokens) or 1 << 31):
            ids[role] = named.value
    prefix = tokens[ids["pre"]] if tokens and "pre" in ids else b""
    needed = [role for role in _WORDS if role != "mid" or prefix != _NO_MIDDLE]
    return FimTokens(
        ids,
        tuple(dict.fromkeys(text for at in ids.values() if tokens for text in _texts(tokens[at]))),
        tuple(_WORDS[role] for role in needed if role not in ids),
        prefix in _SUFFIX_FIRST,
    )


def _tokens(raw: Mapping[str, RawValue]) -> Sequence[bytes]:
    item = raw.get("tokenizer.ggml.tokens")
    if item is None or item.kind != ARRAY or item.value.kind != STRING:
        return ()
    tokens: Sequence[bytes] = item.value.items
    return tokens


def _texts(token: bytes) -> tuple[str, str]:
    """What a token may be called: a space is a space again where it is no control token."""
    name = token.decode("utf-8", "replace")
    return name, name.replace("▁", " ")
