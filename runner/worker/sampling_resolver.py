"""The texts among a request's sampling parameters, as tokens of the model's vocabulary.

Called off the engine's thread: the breakers of dry are looked for in the whole vocabulary. Knows
no engine.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from runner.backends.backend import Tokenizer, TooManyTokens
from runner.backends.dry_breakers import Breakers, find_breakers
from runner.backends.turns import pause
from runner.errors import InvalidRequest
from runner.types import SamplingParams

MAX_KNOWN_BREAKERS = 32
MAX_BIASED_TOKENS = 4096


_NEUTRAL: Final[Mapping[str, Mapping[str, float]]] = {
    "penalties": {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    "dry": {"dry_multiplier": 0.0},
    "top_n_sigma": {"top_n_sigma": 0.0},
    "top_k": {"top_k": 0},
    "typical_p": {"typical_p": 1.0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "xtc": {"xtc_probability": 0.0},
    "temperature": {"temperature": 1.0, "dynatemp_range": 0.0},
}
"""Every sampler in its usual order, and the values with which it does nothing."""
_FIRST: Final = ("penalties", "dry")


def with_samplers(params: SamplingParams) -> SamplingParams:
    """params whose samplers are switched off where it does not name them; of the others, samplers
    keeps only an order that is not the usual one. Raises InvalidRequest."""
    named = params.samplers
    if named is None:
        return params
    off: dict[str, float] = {}
    for name, neutral in _NEUTRAL.items():
        if name not in named:
            off |= neutral
    filters = tuple(name for name in named if name not in _FIRST)
    if tuple(name for name in named if name in _FIRST) != named[: len(named) - len(filters)]:
        raise InvalidRequest(
            f"samplers: penalties and dry act before all others; name them first (got"
            f" {', '.join(named)})",
            param="samplers",
        )
    usual = params.mirostat or filters == tuple(name for name in _NEUTRAL if name in filters)
    changed: Any = {**off, "samplers": None if usual else filters}
    return replace(params, **changed)


class SamplingResolver:
    """Turns texts into tokens for one model; one thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: OrderedDict[tuple[str, ...], Breakers] = OrderedDict()
        self._known_ends: tuple[int, ...] | None = None

    def resolve(self, params: SamplingParams, *, bar_end_tokens: bool = False) -> SamplingParams:
        """params with logit_bias for its text_bias and for end tokens that are barred, with
        banned_runs for its bad_words, with end_token_ids where they count, and with dry_breakers
        where dry acts. Raises InvalidRequest when the texts have too many tokens, and for tokens
        that do not exist."""
        params = with_samplers(params)
        if params.text_bias:
            biases = (*params.logit_bias, *self._biases(params.text_bias))
            params = replace(params, logit_bias=biases, text_bias=())
        if params.bad_words:
            params = replace(params, banned_runs=self._runs(params.bad_words), bad_words=())
        if bar_end_tokens:
            barred = tuple((token, -math.inf) for token in self._ends())
            params = replace(params, logit_bias=(*params.logit_bias, *barred))
        if params.min_tokens:
            ends = (*self._ends(), *params.stop_token_ids)
            params = replace(params, end_token_ids=ends)
        self._check_ids("stop_token_ids", params.stop_token_ids)
        self._check_ids("allowed_token_ids", params.allowed_token_ids)
        if params.dry_multiplier and params.dry_sequence_breakers:
            params = replace(params, dry_breakers=self._breakers(params.dry_sequence_breakers))
        return params

    def _biases(self, texts: tuple[tuple[str, float], ...]) -> list[tuple[int, float]]:
        found: list[tuple[int, float]] = []
        for text, bias in texts:
            pause()
            try:
                tokens = self._tokenizer.encode(
                    text, add_bos=False, parse_special=True, max_tokens=MAX_BIASED_TOKENS
                )
            except TooManyTokens as long:
                tokens = long.tokens
            found += ((token, bias) for token in set(tokens))
            if max(len(tokens), len(found)) > MAX_BIASED_TOKENS:
                raise InvalidRequest(
                    f"logit_bias: the texts have more than {MAX_BIASED_TOKENS} tokens",
                    param="logit_bias",
                )
        return found

    def _runs(self, texts: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """Each text as it stands within a word and as it begins one, as vLLM has it."""
        found: dict[tuple[int, ...], None] = {}
        for text in texts:
            pause()
            for written in (text, " " + text.lstrip()):
                run = self._tokenizer.encode(written, add_bos=False, parse_special=False)
                found[tuple(run)] = None
        return tuple(found)

    def _ends(self) -> tuple[int, ...]:
        if self._known_ends is None:
            is_end = self._tokenizer.is_end
            self._known_ends = tuple(filter(is_end, range(self._tokenizer.vocabulary)))
        return self._known_ends

    def _check_ids(self, name: str, ids: tuple[int, ...]) -> None:
        vocabulary = self._tokenizer.vocabulary
        if ids and max(ids) >= vocabulary:
            raise InvalidRequest(
                f"{name}: token {max(ids)} is not in the vocabulary (0 to {vocabulary - 1})",
                param=name,
            )

    def _breakers(self, texts: tuple[str, ...]) -> Breakers:
        known = self._known.get(texts)
        if known is None:
            known = self._known[texts] = find_breakers(self._tokenizer, texts)
            if len(self._known) > MAX_KNOWN_BREAKERS:
                self._known.popitem(last=False)
        return known
