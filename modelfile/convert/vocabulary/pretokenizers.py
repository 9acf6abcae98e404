r"""Which of llama.cpp's pre-tokenizers splits text as the pre_tokenizer of a tokenizer.json does.

Decided by the regular expressions and their order; special tokens choose among ids that split
alike. An unknown one is refused, since a wrong one changes the tokens silently.

Source: llm_tokenizer_bpe of llama.cpp's llama-vocab.cpp, and the tokenizers library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from modelfile.convert.files import brief, child, fault, flag
from modelfile.convert.vocabulary.steps import steps_of

_FIELD: Final = "pre_tokenizer"

_CONTRACTIONS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|"
_WORD: Final = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3: Final = _CONTRACTIONS + _WORD + r"\p{N}{1,3}" + _SIGNS + _SPACES
QWEN2: Final = _CONTRACTIONS + _WORD + r"\p{N}" + _SIGNS + _SPACES
QWEN35: Final = (
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
    + _SPACES
)


def _cased(suffix: str, digits: str) -> str:
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{start}{_UPPER}*{_LOWER}+{suffix}|{start}{_UPPER}+{_LOWER}*{suffix}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


TEKKEN: Final = _cased("", r"\p{N}")
GPT4O: Final = _cased(_CONTRACTIONS + "?", r"\p{N}{1,3}")
DEEPSEEK3: Final = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
BAILING: Final = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
SEED: Final = _CONTRACTIONS + _WORD + r"\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + _SPACES
UFAKZEKA: Final = _WORD[1:] + r"\p{N}" + _SIGNS + _SPACES
MINICPM5: Final = _CONTRACTIONS + _WORD + r"\p{N}+" + _SIGNS + _SPACES
BLOOM: Final = " ?[^(\\s|[.,!?…。，、।۔،])]+"
JAIS2: Final = (
    _CONTRACTIONS
    + _WORD
    + r"\p{N}{1,3}"
    + _SIGNS
    + r"\s*[\r\n]+"
    + "".join(rf"|\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
    + r"|\s{1}"
)
EXAONE_MOE: Final = (
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
    + r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
DEEPSEEK_LETTERS: Final = (
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295"
    "-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-"
    "\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-"
    "\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-"
    "\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-"
    "\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e"
    "\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-"
    "\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-"
    "\U0001e943]+"
)
DEEPSEEK_SIGNS: Final = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_DIGIT: Final = r"\p{N}"
_DIGITS: Final = r"\p{N}+"
_TRIPLES: Final = r"\p{N}{1,3}"
_HAN: Final = "[一-龥\u3040-ゟ゠-ヿ]+"
_CJK: Final = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_LINE: Final = r"[\r\n]"
_PUNCTUATION: Final = "punctuation Contiguous"

_IGNORE_MERGES: Final = frozenset({"glm4", "llama-bpe", "minicpm5", "tekken"})


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """The ids that split alike. marked: the id for vocabularies that have a certain token."""

    id: str
    marked: Mapping[str, str] = field(default_factory=dict)


_LLAMA3: Final = PreTokenizer("llama-bpe", {"[gMASK]": "glm4"})
_CL100K: Final = PreTokenizer("dbrx", {"[gMASK]": "chatglm-bpe"})
_SMOLLM: Final = PreTokenizer(
    "smollm", {"<|START_OF_TURN_TOKEN|>": "command-r", "<fim_prefix>": "starcoder"}
)
_QWEN2: Final = PreTokenizer(
    "qwen2", {"<｜begin▁of▁sentence｜>": "deepseek-r1-qwen", "<|reg0|>": "stablelm2"}
)

# By the steps of the pre_tokenizer, ByteLevel left out.
PRE_TOKENIZERS: Final[Mapping[tuple[str, ...], PreTokenizer]] = MappingProxyType(
    {
        (GPT2,): PreTokenizer("gpt-2"),
        (_DIGIT, GPT2): _SMOLLM,
        (LLAMA3,): _LLAMA3,
        (QWEN2,): _QWEN2,
        (QWEN35,): PreTokenizer("qwen35"),
        (TEKKEN,): PreTokenizer("tekken"),
        (GPT4O,): PreTokenizer("gpt-4o", {"<|header_start|>": "llama4"}),
        (_TRIPLES, _HAN, DEEPSEEK3): PreTokenizer("deepseek-v3"),
        (BAILING,): PreTokenizer("bailingmoe"),
        (SEED,): PreTokenizer("seed-coder"),
        (UFAKZEKA,): PreTokenizer("ufakzeka"),
        (_TRIPLES, MINICPM5): PreTokenizer("minicpm5"),
        (BLOOM,): PreTokenizer("bloom"),
        (BLOOM, _DIGIT): PreTokenizer("viking"),
        (JAIS2,): PreTokenizer("jais-2"),
        (EXAONE_MOE,): PreTokenizer("exaone-moe"),
        (_LINE, r"\s?\p{L}+", r"\s?\p{P}+", _CJK, _DIGIT): PreTokenizer("deepseek-coder"),
        (_LINE, DEEPSEEK_LETTERS, DEEPSEEK_SIGNS, r"\s+$", _CJK, _DIGIT): PreTokenizer(
            "deepseek-llm"
        ),
        (_PUNCTUATION, GPT2, "[0-9][0-9][0-9]"): PreTokenizer("falcon"),
    }
)


def pre_tokenizer_id(
    tokenizer: Mapping[str, Any], has: Callable[[str], bool], ignore_merges: bool
) -> str:
    """The id for tokenizer.ggml.pre. tokenizer: the object of tokenizer.json; has: whether a
    token exists; ignore_merges: whether a whole word that is a token is taken as it is.

    Raises ConvertError that shows the expressions when llama.cpp has none such.
    """
    steps = [part for step in steps_of(tokenizer, _FIELD) for part in _step(step)]
    if "byte level" not in steps:
        raise fault(_FIELD, f"{_listed(tuple(steps))} without ByteLevel is not supported")
    found = tuple(step for step in steps if step != "byte level")
    family = PRE_TOKENIZERS.get(found)
    if family is None:
        raise fault(_FIELD, f"llama.cpp has no pre-tokenizer for {_listed(found)}")
    if family is _LLAMA3 and not ignore_merges:
        family = _CL100K
    return next((id for token, id in family.marked.items() if has(token)), family.id)


def ignores_merges(id: str) -> bool:
    """Whether llama.cpp takes a whole word that is a token as it is, for this id."""
    return id in _IGNORE_MERGES


def joins_digits(id: str) -> bool:
    """Whether llama.cpp keeps digits together that the tokenizer.json takes apart, for this id:
    the same as long as no merge joins digits."""
    return id == "deepseek-llm"


def _step(value: Mapping[str, Any]) -> list[str]:
    kind = value.get("type")
    if kind == "ByteLevel":
        return _byte_level(value)
    if kind == "Digits":
        return [_DIGIT if value.get("individual_digits") else _DIGITS]
    if kind == "Punctuation":
        return [f"punctuation {value.get('behavior', 'Isolated')}"]
    if kind == "Split":
        return [_split(value)]
    raise fault(_FIELD, f"{brief(kind)} is not supported")


def _byte_level(value: Mapping[str, Any]) -> list[str]:
    if flag(value, "add_prefix_space"):
        raise fault("add_prefix_space", "true, which llama.cpp cannot do for byte-level BPE")
    splits = flag(value, "use_regex")
    return [GPT2, "byte level"] if splits is not False else ["byte level"]


def _split(value: Mapping[str, Any]) -> str:
    pattern = child(value, "pattern")
    text = pattern.get("Regex", pattern.get("String"))
    if not isinstance(text, str):
        raise fault("pattern", f"{brief(text)}, expected a string")
    manner = (value.get("behavior"), value.get("invert", False))
    # Each expression that is known covers all text, so that removing what lies between the
    # matches is the same as keeping the matches apart.
    if manner not in (("Isolated", False), ("Removed", True)):
        raise fault(_FIELD, f"Split {brief(text)} with behavior {manner[0]!r} is not supported")
    return text.replace("\r", r"\r").replace("\n", r"\n")


def _listed(steps: tuple[str, ...]) -> str:
    shown = " then ".join(step if len(step) <= 300 else step[:300] + "..." for step in steps[:8])
    return shown or "no expression"
