"""Which requests a run sends: prompts of a chosen length in tokens, for an unknown tokenizer.

Prompts are common English words, nearly always one token each; how many tokens a word and the
chat template cost is measured on the server (Scale), not assumed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_COMMON = (
    "the of and to in is that it was for on are as with his they at be this from have or by one "
    "had not but what all were when we there can an your which their said if do will each about "
    "how up out them then she many some so these would other into has more her two like him see "
    "time could no make than first been its who now people my made over did down only way find "
    "use may water long little very after words called just where most know"
)
WORDS = tuple(_COMMON.split())


@dataclass(frozen=True, slots=True)
class Workload:
    """A run in a closed loop: each of the clients sends its next request when the last is
    answered. shared_tokens is the length of a system prompt that all requests have in common;
    prompt_tokens that of the part that is each request's own. Another seed, other prompts."""

    clients: int
    requests: int
    prompt_tokens: int = 128
    output_tokens: int = 128
    shared_tokens: int = 0
    seed: str = ""


@dataclass(frozen=True, slots=True)
class TokenScale:
    """What a prompt costs on a server: tokens = overhead + tokens_per_word * words."""

    tokens_per_word: float = 1.0
    overhead: float = 0.0

    def words(self, tokens: float) -> int:
        """How many words make so many tokens; at least one."""
        return max(1, round(tokens / self.tokens_per_word))


def fit_scale(few_words: int, few_tokens: int, many_words: int, many_tokens: int) -> TokenScale:
    """The scale that two prompts show: their lengths in words, and in tokens as counted by the
    server. Raises ValueError when the longer prompt is not longer in tokens."""
    per_word = (many_tokens - few_tokens) / (many_words - few_words)
    if per_word <= 0:
        raise ValueError(f"{few_words} words are {few_tokens} tokens, {many_words} {many_tokens}")
    return TokenScale(per_word, max(0.0, few_tokens - few_words * per_word))


def text(seed: str, words: int) -> str:
    """So many words, always the same for the same seed."""
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def messages(work: Workload, index: int, scale: TokenScale) -> list[dict[str, str]]:
    """The conversation of the request with this index."""
    own_tokens = work.prompt_tokens - scale.overhead
    own = text(f"{work.seed}/{index}", scale.words(own_tokens))
    turns = [{"role": "user", "content": own}]
    if work.shared_tokens:
        shared = text(f"{work.seed}/shared", scale.words(work.shared_tokens))
        turns.insert(0, {"role": "system", "content": shared})
    return turns


def body(model: str, turns: list[dict[str, str]], output_tokens: int) -> Mapping[str, Any]:
    """A streaming request with an answer of exactly output_tokens where the server knows
    ignore_eos; others may end an answer earlier."""
    return {
        "model": model,
        "messages": turns,
        "max_tokens": output_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
