"""Inputs to embed, batch by batch between the steps of generations.

Owns the queue of embedding requests. Knows no text and no sequences.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.backends.backend import Backend
from runner.engine.step_output import StepOutput
from runner.errors import HearthError, InternalError
from runner.types import Embeddings

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _EmbedRequest:
    id: str
    inputs: list[list[int]]
    priority: int
    vectors: list[tuple[float, ...]] = field(default_factory=list)


class EmbeddingQueue:
    """Embedding requests by priority and then by arrival."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._waiting: list[_EmbedRequest] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, id: str, inputs: Sequence[Sequence[int]], priority: int) -> None:
        """Queue inputs, each of which fits in a batch."""
        request = _EmbedRequest(id, [list(tokens) for tokens in inputs], priority)
        insort(self._waiting, request, key=lambda item: item.priority)

    def cancel(self, id: str) -> bool:
        """Forget the request. False: there is none of that id."""
        before = len(self._waiting)
        self._waiting = [request for request in self._waiting if request.id != id]
        return len(self._waiting) < before

    def step(self, output: StepOutput) -> None:
        """Compute at most one batch of the first request, so that streams go on."""
        request = self._waiting[0]
        batch = self._next_batch(request)
        try:
            vectors = self._backend.embed(batch)
        except Exception as error:
            log.error("an embedding request failed", exc_info=error)
            self._waiting.remove(request)
            if not isinstance(error, HearthError):
                error = InternalError(f"the embedding failed: {error}")
            output.errors.append((request.id, error))
            return
        request.vectors += [tuple(vector) for vector in vectors]
        if len(request.vectors) == len(request.inputs):
            self._waiting.remove(request)
            total = sum(map(len, request.inputs))
            output.embeddings.append((request.id, Embeddings(tuple(request.vectors), total)))

    def _next_batch(self, request: _EmbedRequest) -> list[list[int]]:
        start = end = len(request.vectors)
        tokens = 0
        while end < len(request.inputs):
            tokens += len(request.inputs[end])
            if end > start and tokens > self._backend.capacity.batch_tokens:
                break
            end += 1
        return request.inputs[start:end]
