"""The requests: what is asked, of which model, and how tokens are chosen, all by a number."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from random import Random
from typing import Any

# The share of the requests in a hundred: the larger ones take four and eight times as long
MODELS = {"smollm2": 80, "gemma3-270m": 12, "qwen-coder-0.5b": 8}
_TEXT = (
    "river stone lantern engine window garden letter winter copper island bridge signal market"
    " paper harbor valley clock thread mirror forest number answer table machine story sound"
)
_WORDS = _TEXT.split()
_OPENINGS = ("Write about the {} and the {}.", "Why is a {} not a {}?", "def {}_{}(values):\n",
             "A list of things: {}, {},", "The {} said to the {}:")  # fmt: skip
_SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0, "repetition_penalty": 1.15},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 40},
    {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.05},
    {"temperature": 1.3, "top_k": 20, "presence_penalty": 0.5},
    {"temperature": 0.9, "typical_p": 0.9, "frequency_penalty": 0.3},
    {"temperature": 0.8, "mirostat": 2},
    {"temperature": 1.0, "dry_multiplier": 0.8, "no_repeat_ngram_size": 5},
)
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}
_GRAMMARS: tuple[dict[str, Any], ...] = (
    {"guided_regex": r"[A-Z][a-z]{2,9}( [a-z]{2,9}){1,6}\."},
    {"guided_choice": ["river", "riverside", "stone", "stone bridge"]},
    {"guided_json": _SCHEMA},
)


@dataclass(frozen=True, slots=True)
class Case:
    """A request of /v1/completions."""

    number: int
    model: str
    body: dict[str, Any]


def case(number: int) -> Case:
    """The request of this number. Many prompts begin alike."""
    rng = Random(f"invariance {number}")
    (model,) = rng.choices(list(MODELS), list(MODELS.values()))
    opening = rng.choice(_OPENINGS).format(*rng.choices(_WORDS, k=2))
    body: dict[str, Any] = {
        "model": model,
        "prompt": preface(rng.randrange(6)) + opening,
        "max_tokens": rng.randint(4, 48),
        "seed": rng.getrandbits(31),
        "logprobs": 2,
        "return_token_ids": True,
        **rng.choice(_SAMPLINGS),
    }
    if rng.random() < 0.15:
        body |= rng.choice(_GRAMMARS)
    return Case(number, model, body)


def preface(number: int) -> str:
    """What prompts of the same number begin with; nothing for 0 and 1."""
    if number < 2:
        return ""
    return " ".join(Random(f"preface {number}").choices(_WORDS, k=25 * number)) + ".\n"


def fingerprint(answer: dict[str, Any]) -> str:
    """Of all that depends on the logits: text, tokens, their log-probabilities and the end."""
    (choice,) = answer["choices"]
    return hashlib.sha256(json.dumps(choice, sort_keys=True).encode()).hexdigest()[:16]
