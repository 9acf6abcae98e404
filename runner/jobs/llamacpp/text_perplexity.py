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
from runner.jobs.llamacpp.evaluation import EvaluationContext

_ROWS = 64  # so many rows of logits are worked on at once: 40 MB of a vocabulary of 150,000


@dataclass(frozen=True, slots=True)
class Perplexity:
    """error: the standard error of perplexity. tokens: how many were scored."""

    perplexity: float
    error: float
    tokens: int
    chunks: int
    context: int


def perplexity(
    opened: EvaluationContext, text: str, progress: Callable[[int, int], None]
) -> Perplexity:
    """Measure; progress is called with the chunks done and all. Raises InvalidRequest for a short
    text, InternalError."""
    chunks, losses = opened.chunks(text), []
    for number, chunk in enumerate(chunks):
        progress(number, len(chunks))
        losses.append(_losses(opened, chunk))
    progress(len(chunks), len(chunks))
    values = np.concatenate(losses)
    mean, count = float(values.mean()), len(values)
    if not math.isfinite(mean):
        raise InternalError("the model's outputs are NaN; its weights are damaged")
    variance = max(0.0, float((values**2).mean()) - mean * mean)
    value = math.exp(min(mean, 700.0))
    error = math.sqrt(variance / (count - 1)) * value
    return Perplexity(value, error, count, len(chunks), opened.context)


def _losses(opened: EvaluationContext, chunk: NDArray[np.int32]) -> NDArray[np.float64]:
    """The negative log-likelihoods, in nats, of the chunk's scored tokens."""
    first = len(chunk) // 2
    expected, losses = chunk[first + 1 :], []
    for logits in opened.run(chunk, first):
        for start in range(0, len(logits), _ROWS):
            wanted = expected[:_ROWS][: len(logits) - start]
            expected = expected[len(wanted) :]
            if len(wanted):
                losses.append(row_losses(logits[start : start + len(wanted)], wanted))
    return np.concatenate(losses)


def row_losses(logits: NDArray[np.float32], expected: NDArray[np.int32]) -> NDArray[np.float64]:
    """Each row's negative log-softmax, in nats, at its expected token."""
    rows = logits.astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    chosen = rows[np.arange(len(rows)), expected]
    return np.asarray(np.log(np.exp(rows).sum(axis=1)) - chosen, np.float64)
