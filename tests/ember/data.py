"""Turns the stream of conversations into batches of similar length.

Rows start at position 0 as at inference and are padded on the right; causal attention never sees
the padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.ember.chat import segments
from tests.ember.exchange import LETTER_BREAK, Conversation
from tests.ember.mixture import training_conversation
from tests.ember.tokenizer import PAD_ID, Tokenizer

SORTED_KEYS_SHARE = 0.2
"""Some chat runtimes print tool schemas with sorted keys; a part of the samples is rendered that
way.
"""
POOL_SAMPLES = 1536
SECOND_PART_POOL = 64
THIRD_PART_POOL = 120
"""From these pools on, about steps 3,300 and 6,100, the mixture is that of the next part."""
LONG_ANSWER = 16
"""Answers longer than this many tokens count less per token, so that stories do not crowd out short
answers.
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation: token ids and the weight of each as a target (0 = not learned)."""

    tokens: list[int]
    weights: list[float]


def sample(conversation: Conversation, tokenizer: Tokenizer, sort_keys: bool, limit: int) -> Sample:
    """Encode `conversation`, cut to `limit` tokens."""
    tokens: list[int] = []
    weights: list[float] = []
    for text, learned in segments(conversation, sort_keys=sort_keys):
        ids = [each for part in text.split(LETTER_BREAK) for each in tokenizer.encode(part)]
        weight = min(1.0, (LONG_ANSWER / len(ids)) ** 0.5) if learned else 0.0
        tokens += ids
        weights += [weight] * len(ids)
    return Sample(tokens[:limit], weights[:limit])


class Batches:
    """Endless batches of up to `batch_tokens` tokens, padding included, the same for a seed.

    A pool of samples is sorted by length and cut; the batches of a pool come in random order. Every
    pool has a random source of its own, so that a resumed run continues with what comes next.
    """

    def __init__(
        self, seed: int, tokenizer: Tokenizer, batch_tokens: int, limit: int = 2048
    ) -> None:
        self.seed, self.tokenizer = seed, tokenizer
        self.batch_tokens, self.limit = batch_tokens, limit
        self.pool, self.taken = 0, 0
        self._cut: list[list[Sample]] = []

    def skip_to(self, pool: int, taken: int) -> None:
        """Continue after `taken` batches of pool number `pool`."""
        self.pool, self.taken = pool, taken
        self._cut = []

    def __next__(self) -> list[Sample]:
        """The next batch."""
        if not self._cut:
            self._cut = self._draw_pool()
        if self.taken == len(self._cut):
            self.pool, self.taken = self.pool + 1, 0
            self._cut = self._draw_pool()
        self.taken += 1
        return self._cut[self.taken - 1]

    def _draw_pool(self) -> list[list[Sample]]:
        rng = Random(f"pool {self.seed} {self.pool}")
        samples = [
            sample(
                training_conversation(rng, _part(self.pool)),
                self.tokenizer,
                rng.random() < SORTED_KEYS_SHARE,
                self.limit,
            )
            for _ in range(POOL_SAMPLES)
        ]
        samples.sort(key=lambda each: len(each.tokens))
        cut: list[list[Sample]] = [[]]
        for each in samples:
            if cut[-1] and (len(cut[-1]) + 1) * len(each.tokens) > self.batch_tokens:
                cut.append([])
            cut[-1].append(each)
        rng.shuffle(cut)
        return cut


def _part(pool: int) -> int:
    return 1 + (pool >= SECOND_PART_POOL) + (pool >= THIRD_PART_POOL)


def padded(samples: list[Sample]) -> tuple[list[list[int]], list[list[float]]]:
    """Rows of equal length: token ids and weights."""
    longest = max(len(each.tokens) for each in samples)
    tokens = [each.tokens + [PAD_ID] * (longest - len(each.tokens)) for each in samples]
    weights = [each.weights + [0.0] * (longest - len(each.weights)) for each in samples]
    return tokens, weights
