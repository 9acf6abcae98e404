"""The sampler of one request: chooses the next token from a row of logits.

The meaning is written in tests/sampling_definition.py. What has to look at the whole vocabulary
(bias, penalties, watermark, greedy choice, top_k, a top_p or draw without top_k) is done in NumPy;
the handful of candidates it leaves goes through llama.cpp's chain. At 151,936 logits and the
default parameters that takes 50 us a token on one core, where llama_sampler_sample takes 200 to 500
us; sampling rows in two threads was slower than in one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from runner.backends.backend import Sampler
from runner.backends.host_sampling.chain import (
    MIN_LOGIT,
    MIN_TEMPERATURE,
    NEGLIGIBLE_NATS,
    STEPS,
    CandidateArray,
    OrderedChain,
    SamplerChain,
    active_steps,
    drawing_chain,
    seed_of,
)
from runner.backends.host_sampling.logits import Logits, TokenIds
from runner.backends.host_sampling.nucleus import draw, nucleus
from runner.backends.host_sampling.penalties import LogitAdjustment
from runner.backends.host_sampling.top_k import top_k_ids
from runner.backends.host_sampling.watermark import green_tokens
from runner.errors import InvalidRequest
from runner.types import SamplingParams


class TokenPicker(Protocol):
    """How a token is drawn."""

    def __call__(self, logits: Logits, best: int) -> int:
        """The token. best: that of the highest logit."""

    def drawn_from(self, logits: Logits) -> tuple[TokenIds, Logits]:
        """The tokens that the last one was drawn from, with their weights."""


class HostSampler(Sampler):
    """A sampler on the host, over a row of logits."""

    def __init__(self, params: SamplingParams, candidates: CandidateArray, vocabulary: int) -> None:
        """Raises InvalidRequest for a bias or penalty that no model of this vocabulary can
        apply."""
        _check(params, vocabulary)
        self.params = params
        self.drawn_from: tuple[TokenIds, Logits] | None = None  # see TokenPicker; if asked for
        self._adjustment = LogitAdjustment(params)
        self._green = green_tokens(vocabulary) if params.watermark else None
        self._pick: TokenPicker | None = (
            None if params.temperature <= 0 else _create_picker(params, candidates)
        )

    def accept(self, tokens: Sequence[int]) -> None:
        self._adjustment.accept(tokens, sampled=False)

    def choose(self, logits: Logits, previous: int = 0) -> int | None:
        """The next token from logits [vocabulary], accepted; None when they hold NaN or leave
        nothing to choose. logits are written to, and restored. previous: the token before."""
        if not self._adjustment.active:
            return self._choose(self._marked(logits, previous))
        with self._adjustment.apply(logits):
            token = self._choose(self._marked(logits, previous))
        if token is not None:
            self._adjustment.accept((token,), sampled=True)
        return token

    def _marked(self, logits: Logits, previous: int) -> Logits:
        """logits, or a copy with the watermark."""
        params = self.params
        if self._green is None:
            return logits
        return self._green.apply(logits, previous, params.watermark_gamma, params.watermark_delta)

    def _choose(self, logits: Logits) -> int | None:
        best = int(logits.argmax())  # of NaN, if there is one
        if not math.isfinite(logits[best]):
            return None
        token = best if self._pick is None else self._pick(logits, best)
        if self.params.drawn_logprobs:
            self.drawn_from = (
                (np.array([best]), np.ones(1, np.float32))
                if self._pick is None
                else self._pick.drawn_from(logits)
            )
        return token

    @property
    def needs_all_logits(self) -> bool:
        """Whether more than the logits of the allowed tokens counts."""
        params = self.params
        if self._adjustment.active or params.watermark or params.drawn_logprobs:
            return True
        return params.mirostat > 0 or params.samplers is not None

    def choose_among(self, logits: Logits, ids: TokenIds) -> int | None:
        """As choose, where only the tokens ids, ascending, may be chosen: the same token as with
        the others at -inf, without a look at them. Not where needs_all_logits."""
        if len(ids) == 1:
            return int(ids[0]) if math.isfinite(logits[ids[0]]) else None
        place = self._choose(logits[ids])
        return None if place is None else int(ids[place])

    def close(self) -> None:
        if isinstance(self._pick, _ShortlistDraw):
            self._pick.close()


def _create_picker(params: SamplingParams, candidates: CandidateArray) -> TokenPicker:
    steps = active_steps(params)
    return _ShortlistDraw(params, steps, candidates) if steps else _FullDraw(params)


class _FullDraw(TokenPicker):
    """No filter: a draw over the whole vocabulary."""

    def __init__(self, params: SamplingParams) -> None:
        self._temperature = max(params.temperature, MIN_TEMPERATURE)
        self._random = random.Random(seed_of(params))

    def __call__(self, logits: Logits, best: int) -> int:
        return draw(logits, float(logits[best]), self._temperature, self._random.random())

    def drawn_from(self, logits: Logits) -> tuple[TokenIds, Logits]:
        heat = np.float32(self._temperature)
        return np.arange(len(logits)), np.exp((logits - logits.max()) / heat)


class _ShortlistDraw(TokenPicker):
    """A shortlist first, llama.cpp's filters and draw on it."""

    def __init__(
        self, params: SamplingParams, steps: tuple[str, ...], candidates: CandidateArray
    ) -> None:
        self._top_k = params.top_k if "top_k" in steps else 0
        self._sigmas = params.top_n_sigma if "top_n_sigma" in steps else 0.0
        self._top_p = params.top_p if steps[0] == "top_p" else None
        self._offset = _min_logit_offset(params, steps)
        self._candidates = candidates
        chained = steps if self._top_p is None else steps[1:]
        self._chain: SamplerChain | OrderedChain
        if params.samplers is None or params.mirostat:
            self._chain = drawing_chain(params, chained, candidates.capacity)
        else:
            self._chain = OrderedChain(params)

    def __call__(self, logits: Logits, best: int) -> int:
        peak = float(logits[best])
        floor = np.float32(max(peak + self._offset, MIN_LOGIT))
        if self._sigmas > 0:
            deviation = float(logits[logits >= MIN_LOGIT].std(dtype=np.float64))
            floor = max(floor, np.float32(peak - self._sigmas * deviation))
        ids = self._shortlist(logits, peak, floor)
        values = logits[ids]
        ordered = self._top_k > 0 or self._top_p is not None
        if ordered and values[-1] < floor:
            ids, values = ids[values >= floor], values[values >= floor]
        self._candidates.fill(ids, values, ordered=ordered)
        return self._chain.draw(self._candidates)

    def drawn_from(self, logits: Logits) -> tuple[TokenIds, Logits]:
        ids, weights = self._candidates.remaining()
        return ids.astype(np.int64), weights

    def _shortlist(self, logits: Logits, peak: float, floor: np.float32) -> TokenIds:
        if self._top_k > 0:
            return top_k_ids(logits, self._top_k)
        if self._top_p is not None:
            return nucleus(logits, peak, self._top_p)
        return np.flatnonzero(logits >= floor)

    def close(self) -> None:
        self._chain.close()


def _min_logit_offset(params: SamplingParams, steps: tuple[str, ...]) -> float:
    """How far from the highest logit (0 or less) a token may be and still be drawn. The chain
    decides; this only spares it tokens that its first filter would drop."""
    first = next((name for name in steps if name in STEPS and STEPS[name].create), None)
    if first == "typical_p":
        return -NEGLIGIBLE_NATS
    if first == "min_p":
        return math.log(min(params.min_p, 1.0)) - 1e-3
    return -math.inf


def _check(params: SamplingParams, vocabulary: int) -> None:
    for token, _ in params.logit_bias:
        if not 0 <= token < vocabulary:
            raise InvalidRequest(
                f"logit_bias names the token {token}; this model has 0 to {vocabulary - 1}",
                param="logit_bias",
            )
    if not params.repeat_penalty > 0:
        raise InvalidRequest(
            f"repeat_penalty is {params.repeat_penalty}; it must be greater than 0",
            param="repeat_penalty",
        )
