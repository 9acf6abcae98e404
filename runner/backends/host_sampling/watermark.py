"""The watermark on a row of logits: runner/watermark.py for a whole vocabulary at once.

151,936 logits take 0.13 ms, a hash of the whole row and its sum with the logits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from runner.backends.host_sampling.logits import Logits
from runner.watermark import GOLDEN, MIXERS, SHIFTS, bound, seeds


class GreenTokens:
    """The memory of one row, shared by all; one thread at a time."""

    def __init__(self, vocabulary: int) -> None:
        self._hashes = _token_hashes(vocabulary)
        self._words = np.empty(vocabulary, np.uint32)
        self._green = np.empty(vocabulary, np.bool_)
        self._marked = np.empty(vocabulary, np.float32)

    def after(self, previous: int, gamma: float) -> NDArray[np.bool_]:
        """Whether each token is green after previous, [vocabulary]; good until the next call."""
        factor, summand = map(np.uint32, seeds(previous))
        np.multiply(self._hashes, factor, out=self._words)
        np.add(self._words, summand, out=self._words)
        return np.less(self._words, np.uint32(bound(gamma)), out=self._green)

    def apply(self, logits: Logits, previous: int, gamma: float, delta: float) -> Logits:
        """A copy of logits [vocabulary], good until the next call, with delta more for those that
        are green after previous."""
        green = self.after(previous, gamma)
        np.multiply(green, np.float32(delta), out=self._marked, casting="unsafe")
        return np.add(self._marked, logits, out=self._marked)


@lru_cache(maxsize=2)
def green_tokens(vocabulary: int) -> GreenTokens:
    """That of this process's thread that samples."""
    return GreenTokens(vocabulary)


def _token_hashes(vocabulary: int) -> NDArray[np.uint32]:
    """runner.watermark.token_hash of each token."""
    words = np.arange(vocabulary, dtype=np.uint32) + np.uint32(GOLDEN)
    for shift, mixer in zip(SHIFTS, (*MIXERS, 1), strict=True):
        words ^= words >> np.uint32(shift)
        words *= np.uint32(mixer)
    return words
