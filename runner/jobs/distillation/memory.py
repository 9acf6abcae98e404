"""What the training of a student takes in memory, told before it begins. Loads no PyTorch.

The parts follow network.py, optimizer.py and training.py, and change with them: weights, momentum,
moments and gradients are fp32, and a batch computes in bf16 with fp32 norms and logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from registry.errors import shown_size
from runner.errors import InsufficientMemory
from runner.jobs.distillation.batches import Batches, Plan
from runner.jobs.distillation.corpus import Corpus
from runner.jobs.distillation.student import SHORT, Shape

_PROCESS_BYTES: Final = 480 << 20  # Python and PyTorch, measured
_APART: Final = 9 / 8  # of batches in two threads, which cannot use what the other has freed
_LOGIT_BYTES: Final = 16  # logits, log-probabilities, and the gradients of both


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Most that a step has at once, by part. gradients, activations and logits are those of all its
    batches; activations include the bf16 weights."""

    weights_bytes: int
    optimizer_bytes: int
    gradients_bytes: int
    activations_bytes: int
    logits_bytes: int

    @property
    def total_bytes(self) -> int:
        """Activations are gone when the last gradients are there."""
        return _PROCESS_BYTES + sum(self._parts.values())

    @property
    def _parts(self) -> dict[str, int]:
        parts = {"weights": self.weights_bytes, "optimizer state": self.optimizer_bytes}
        batches = {"activations": self.activations_bytes, "logits": self.logits_bytes}
        if self.gradients_bytes >= sum(batches.values()):
            return {**parts, "gradients": self.gradients_bytes}
        return {**parts, **batches}

    def require(self, available_bytes: int, plan: Plan) -> None:
        """Refuse a training that does not fit. Raises InsufficientMemory."""
        if self.total_bytes <= available_bytes:
            return
        parts = ", ".join(f"{name} {shown_size(size)}" for name, size in self._parts.items())
        threads = "train with one thread, " if plan.batches_per_step > 1 else ""
        raise InsufficientMemory(
            f"training the student needs {shown_size(self.total_bytes)} ({parts}), but only"
            f" {shown_size(available_bytes)} is free; {threads}use a smaller hidden_size or"
            " num_hidden_layers, or stop a model",
            needed_bytes=self.total_bytes,
            available_bytes=available_bytes,
        )


def training_memory(shape: Shape, plan: Plan, corpus: Corpus | None = None) -> TrainingMemory:
    """Of a training. corpus: where it is known; without it, what the student takes with any
    text."""
    count, batches = shape.parameters, plan.batches_per_step
    embeddings = shape.vocabulary * shape.width
    activations, logits = (0, 0) if corpus is None else _largest(shape, plan, corpus)
    apart = _APART if batches > 1 else 1
    sums = batches + 1 if batches > 1 else 1  # the gradients of all batches and their sum
    return TrainingMemory(
        weights_bytes=4 * count,
        optimizer_bytes=4 * (count - embeddings) + 8 * embeddings,
        gradients_bytes=4 * count * sums,
        activations_bytes=int(batches * (2 * count + activations * apart)),
        logits_bytes=batches * logits,
    )


def _largest(shape: Shape, plan: Plan, corpus: Corpus) -> tuple[int, int]:
    """Activations and logits of the batch that takes most."""
    lengths, places = np.diff(corpus.starts), np.diff(corpus.first)

    def sizes(documents: list[int]) -> tuple[int, int]:
        longest = int(lengths[documents].max())
        tokens = len(documents) * longest
        logits = int(places[documents].sum()) * shape.vocabulary * _LOGIT_BYTES
        return tokens * _token_bytes(shape, longest), logits

    return max(map(sizes, Batches(corpus, plan).of_epoch(0)), key=sum)


def _token_bytes(shape: Shape, length: int) -> int:
    """What the backward pass needs of one token among length: each norm's input and its result in
    both types, queries, keys, values and what comes of them, four times the feed-forward, and to
    512 tokens also the scores of all heads, as bf16 and as fp32, and of one block their
    gradients."""
    values = shape.heads * length
    scores, gradients = (6 * values, 12 * values) if length <= SHORT else (2 * shape.width, 0)
    block = (2 * 10 + 3 * 2 + 2) * shape.width + 4 * 2 * shape.feed_forward + scores
    return shape.layers * block + 12 * shape.width + gradients
