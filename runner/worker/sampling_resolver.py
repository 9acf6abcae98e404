"""The texts among a request's sampling parameters, as tokens of the model's vocabulary.

Called off the engine's thread: the breakers of dry are looked for in the whole vocabulary. Knows
no engine.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from runner.backends.backend import Tokenizer, TooManyTokens
from runner.backends.dry_breakers import Breakers, find_breakers
from runner.backends.turns import pause
from runner.errors import InvalidRequest
from runner.types import SamplingParams

MAX_KNOWN_BREAKERS = 32
MAX_BIASED_TOKENS = 4096


class SamplingResolver:
    """Turns texts into tokens for one model; one thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: OrderedDict[tuple[str, ...], Breakers] = OrderedDict()

    def resolve(self, params: SamplingParams) -> SamplingParams:
        """params with logit_bias for its text_bias, and with dry_breakers where dry acts. Raises
        InvalidRequest when the texts have too many tokens."""
        if params.text_bias:
            biases = (*params.logit_bias, *self._biases(params.text_bias))
            params = replace(params, logit_bias=biases, text_bias=())
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

    def _breakers(self, texts: tuple[str, ...]) -> Breakers:
        known = self._known.get(texts)
        if known is None:
            known = self._known[texts] = find_breakers(self._tokenizer, texts)
            if len(self._known) > MAX_KNOWN_BREAKERS:
                self._known.popitem(last=False)
        return known
