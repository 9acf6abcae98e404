"""What a request's history and bias do to logits: steps 1 to 3 of tests/sampling_definition.py.

Few of the many logits change, so they are changed in place and put back afterwards. Knows
nothing of the filters that follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from runner.backends.host_sampling.dry import create_dry
from runner.backends.host_sampling.logits import Logits
from runner.types import SamplingParams

Penalty = Callable[[Logits, NDArray[np.float32]], Logits]  # (logits, counts) -> logits


class PenaltyWindow:
    """How often each token occurs among the last tokens; size None: among all of them."""

    def __init__(self, size: int | None) -> None:
        self._tokens: deque[int] | None = None if size is None else deque(maxlen=size)
        self._counts: dict[int, int] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Let newer tokens in and the oldest out."""
        for token in tokens:
            if self._tokens is not None:
                if len(self._tokens) == self._tokens.maxlen:
                    self._forget(self._tokens[0])
                self._tokens.append(token)
            self._counts[token] = self._counts.get(token, 0) + 1

    def _forget(self, token: int) -> None:
        left = self._counts.pop(token) - 1
        if left:
            self._counts[token] = left

    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The tokens inside and how often each occurs."""
        size = len(self._counts)
        tokens = np.fromiter(self._counts, np.int64, size)
        return tokens, np.fromiter(self._counts.values(), np.float32, size)


class LogitAdjustment:
    """The bias and the penalties of one request."""

    def __init__(self, params: SamplingParams) -> None:
        bias: dict[int, float] = {}
        for token, value in params.logit_bias:
            bias[token] = bias.get(token, 0.0) + value
        self._biased = np.fromiter(bias, np.int64, len(bias))
        self._bias = np.fromiter(bias.values(), np.float32, len(bias))
        self._repeat = np.float32(params.repeat_penalty)
        self._presence = np.float32(params.presence_penalty)
        self._frequency = np.float32(params.frequency_penalty)
        self._sampled = PenaltyWindow(None) if _counts_sampled(params) else None
        self._window = _window(params)
        self._dry = create_dry(params)

    @property
    def active(self) -> bool:
        """False: apply would change nothing, whatever the history."""
        windows = (self._sampled, self._window, self._dry)
        return bool(len(self._biased)) or any(window is not None for window in windows)

    def accept(self, tokens: Sequence[int], *, sampled: bool) -> None:
        """Let the penalties see more tokens of the history."""
        if self._window is not None:
            self._window.extend(tokens)
        if self._sampled is not None and sampled:
            self._sampled.extend(tokens)
        if self._dry is not None:
            self._dry.extend(tokens)

    @contextmanager
    def apply(self, logits: Logits) -> Iterator[None]:
        """Inside the block, logits [vocabulary] are adjusted; after it they are as before."""
        raw_biased = logits[self._biased]
        logits[self._biased] += self._bias
        with (
            self._penalties(logits, self._window, self._penalised),
            self._penalties(logits, self._sampled, self._less_counted),
            self._dry_penalties(logits),
        ):
            yield
        logits[self._biased] = raw_biased

    @contextmanager
    def _penalties(
        self, logits: Logits, window: PenaltyWindow | None, penalised: Penalty
    ) -> Iterator[None]:
        if window is None:
            yield
            return
        tokens, counts = window.counts()
        before = logits[tokens]
        logits[tokens] = penalised(before, counts)
        yield
        logits[tokens] = before

    @contextmanager
    def _dry_penalties(self, logits: Logits) -> Iterator[None]:
        if self._dry is None:
            yield
            return
        tokens, amounts = self._dry.penalties()
        before = logits[tokens]
        logits[tokens] = before - amounts
        yield
        logits[tokens] = before

    def _penalised(self, logits: Logits, counts: NDArray[np.float32]) -> Logits:
        scaled: Logits = np.where(logits <= 0, logits * self._repeat, logits / self._repeat)
        return scaled if self._sampled is not None else self._less_counted(scaled, counts)

    def _less_counted(self, logits: Logits, counts: NDArray[np.float32]) -> Logits:
        result: Logits = logits - counts * self._frequency - self._presence
        return result


def _counts(params: SamplingParams) -> bool:
    """Whether it matters how often a token occurred."""
    return params.presence_penalty != 0.0 or params.frequency_penalty != 0.0


def _counts_sampled(params: SamplingParams) -> bool:
    return params.sampled_penalties and _counts(params)


def _window(params: SamplingParams) -> PenaltyWindow | None:
    counts = _counts(params) and not params.sampled_penalties
    if (params.repeat_penalty == 1.0 and not counts) or params.repeat_last_n == 0:
        return None
    return PenaltyWindow(params.repeat_last_n if params.repeat_last_n > 0 else None)
