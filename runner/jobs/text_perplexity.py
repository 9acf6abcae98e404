"""Perplexity of a text, as llama-perplexity has it.

The text is cut into chunks that do not overlap; of each, the second half is scored, so that every
scored token has at least half a context before it. Knows nothing of jobs and files.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runner.errors import InternalError
from runner.jobs.measured_model import MeasuredModel

_ROWS = 4  # so many rows of logits a thread works on at once: they stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Perplexity:
    """error: the standard error of perplexity. tokens: how many were scored."""

    perplexity: float
    error: float
    tokens: int
    chunks: int
    context: int


@dataclass(frozen=True, slots=True)
class Losses:
    """Of so many chunks: the sum of the negative log-likelihoods, in nats, and of their squares."""

    chunks: int = 0
    total: float = 0.0
    squares: float = 0.0


def perplexity(
    opened: MeasuredModel,
    text: str,
    progress: Callable[[Losses, int], None],
    known: Losses,
) -> Perplexity:
    """Measure; progress is called with what is known and the number of all chunks. known: of the
    first chunks, from a measurement before. Raises InvalidRequest for a short text,
    InternalError."""
    chunks = opened.chunks(text)
    sums = known if known.chunks <= len(chunks) else Losses()
    progress(sums, len(chunks))
    for chunk in chunks[sums.chunks :]:
        own = _losses(opened, chunk)
        total, squares = float(own.sum()), float((own**2).sum())
        if not math.isfinite(squares):
            raise InternalError("the model's outputs are NaN; its weights are damaged")
        sums = Losses(sums.chunks + 1, sums.total + total, sums.squares + squares)
        progress(sums, len(chunks))
    count = len(chunks) * (opened.context - opened.context // 2 - 1)
    mean = sums.total / count
    variance = max(0.0, sums.squares / count - mean * mean)
    value = math.exp(min(mean, 700.0))
    error = math.sqrt(variance / (count - 1)) * value
    return Perplexity(value, error, count, len(chunks), opened.context)


def _losses(opened: MeasuredModel, chunk: NDArray[np.int32]) -> NDArray[np.float64]:
    """The negative log-likelihoods, in nats, of the chunk's scored tokens."""
    first = len(chunk) // 2
    expected = chunk[first + 1 :]
    losses: list[NDArray[np.float64]] = []
    for logits in opened.run(chunk, first):
        wanted = expected[: len(logits)]
        expected = expected[len(wanted) :]
        blocks = range(0, len(wanted), _ROWS)
        losses += opened.threads.map(
            row_losses,
            (logits[start : start + _ROWS][: len(wanted) - start] for start in blocks),
            (wanted[start : start + _ROWS] for start in blocks),
        )
    return np.concatenate(losses)


def row_losses(logits: NDArray[np.float32], expected: NDArray[np.int32]) -> NDArray[np.float64]:
    """Each row's negative log-softmax, in nats, at its expected token."""
    rows = logits - logits.max(axis=1, keepdims=True)
    chosen = rows[np.arange(len(rows)), expected].astype(np.float64)
    sums = np.exp(rows, out=rows).sum(axis=1, dtype=np.float64)
    return np.asarray(np.log(sums) - chosen, np.float64)
