"""What a run of training does, and which documents it takes together. Knows no network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runner.jobs.distillation.corpus import Corpus

HELD_OUT: Final = 50  # every so many documents one is not learned, but measured
MAX_HELD_OUT: Final = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does; the same plan gives the same weights on the same machine. A step takes
    batches of up to batch_tokens tokens, padding included, each in a thread of its own."""

    steps: int
    batch_tokens: int = 3072
    batches_per_step: int = 2
    seed: int = 1
    threads: int = 2
    matrix_rate: float = 0.015
    vector_rate: float = 0.003
    checkpoint_every: int = 100


def held_out(corpus: Corpus) -> NDArray[np.int64]:
    """The documents that are not learned; none where the text has few."""
    if corpus.documents <= HELD_OUT:
        return np.arange(0)
    return np.arange(0, corpus.documents, max(HELD_OUT, corpus.documents // MAX_HELD_OUT))


def sampled(corpus: Corpus, plan: Plan, tokens: int) -> list[NDArray[np.int32]]:
    """Documents that are learned, chosen by the plan's seed, until they have so many tokens."""
    learned = np.setdiff1d(np.arange(corpus.documents), held_out(corpus))
    found: list[NDArray[np.int32]] = []
    for document in np.random.default_rng(plan.seed).permutation(learned).tolist():
        if sum(map(len, found)) >= tokens:
            break
        found.append(corpus.tokens[corpus.starts[document] : corpus.starts[document + 1]])
    return found


class Batches:
    """Endless batches of similar lengths; those of an epoch come in an order of its own."""

    def __init__(self, corpus: Corpus, plan: Plan) -> None:
        self._lengths = np.diff(corpus.starts)
        self._documents = np.setdiff1d(np.arange(corpus.documents), held_out(corpus))
        self._plan = plan
        self.epoch, self.taken = 0, 0
        self._cut: list[list[int]] = []

    def skip_to(self, epoch: int, taken: int) -> None:
        """Go on after so many batches of an epoch."""
        self.epoch, self.taken, self._cut = epoch, taken, []

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        """The documents of the next batch."""
        if not self._cut:
            self._cut = self.of_epoch(self.epoch)
        if self.taken == len(self._cut):
            self.epoch, self.taken = self.epoch + 1, 0
            self._cut = self.of_epoch(self.epoch)
        self.taken += 1
        return self._cut[self.taken - 1]

    def of_epoch(self, epoch: int) -> list[list[int]]:
        """All batches of an epoch, in order."""
        rng = np.random.default_rng([self._plan.seed, epoch])
        mixed = rng.permutation(self._documents)
        cut: list[list[int]] = []
        for document in mixed[np.argsort(self._lengths[mixed], kind="stable")].tolist():
            length = int(self._lengths[document])
            if not cut or (len(cut[-1]) + 1) * length > self._plan.batch_tokens:
                cut.append([])
            cut[-1].append(document)
        return [cut[each] for each in rng.permutation(len(cut))]
