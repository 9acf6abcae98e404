"""The watermark of answers: which tokens are green after another, and what a text says of it.

Kirchenbauer et al., A Watermark for Large Language Models, 2023: the token before seeds a hash that
colours a share gamma of the vocabulary green, sampling raises the logits of green tokens by delta,
and a text with more green tokens than chance has was sampled so. Plain integers, to be read;
runner/backends/host_sampling/watermark.py colours a whole vocabulary at once.

Imports nothing. Whoever knows the hash, and it is public, can find the mark or avoid it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

WORD: Final = 0xFFFFFFFF
GOLDEN: Final = 0x9E3779B9  # 2**32 by the golden ratio
SALT: Final = 15_485_863  # the hash key of the paper's code, and of TGI's
MIXERS: Final = (0x7FEB352D, 0x846CA68B)
SHIFTS: Final = (16, 15, 16)
"""Of the hash lowbias32 (Wellons, Prospecting for Hash Functions, 2018)."""

MARKED_Z: Final = 4.0  # by chance 3 of 100,000 texts exceed it


def mixed(value: int) -> int:
    """The hash of 32 bits, of which each depends on all of value's."""
    value = (value ^ value >> SHIFTS[0]) * MIXERS[0] & WORD
    value = (value ^ value >> SHIFTS[1]) * MIXERS[1] & WORD
    return value ^ value >> SHIFTS[2]


def token_hash(token: int) -> int:
    """What stands for a token, 32 bits."""
    return mixed((token + GOLDEN) & WORD)


def seeds(previous: int) -> tuple[int, int]:
    """The odd factor and the summand that colour the vocabulary after a token."""
    first = mixed((previous * GOLDEN + SALT) & WORD)
    return first | 1, mixed(first ^ GOLDEN)


def bound(gamma: float) -> int:
    """Hashes below it are green."""
    return min(WORD, round(gamma * 2**32))


def is_green(previous: int, token: int, gamma: float) -> bool:
    """Whether token is green after previous: multiply-shift hashing (Dietzfelbinger, 1996)."""
    factor, summand = seeds(previous)
    return (token_hash(token) * factor + summand) & WORD < bound(gamma)


@dataclass(frozen=True, slots=True)
class Detection:
    """scored: pairs of tokens that count, each once, as a pair that a text repeats is no new
    evidence; green of them. z_score: standard deviations above what chance gives. p_value: how
    often chance reaches that, by the normal distribution, as the paper has it."""

    scored: int
    green: int
    z_score: float
    p_value: float

    @property
    def is_marked(self) -> bool:
        """Whether chance is no explanation."""
        return self.z_score > MARKED_Z


def detect(tokens: Sequence[int], gamma: float) -> Detection:
    """What tokens say of a watermark with this gamma. Some 4 us a token."""
    pairs = set(pairwise(tokens))
    green = sum(is_green(previous, token, gamma) for previous, token in pairs)
    deviation = math.sqrt(len(pairs) * gamma * (1 - gamma))
    z_score = (green - gamma * len(pairs)) / deviation if pairs else 0.0
    return Detection(len(pairs), green, z_score, math.erfc(z_score / math.sqrt(2)) / 2)
