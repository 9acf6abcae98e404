"""Inputs to embed, batch by batch between the steps of generations.

Owns the queue of embedding requests. Knows no text and no sequences.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.backends.backend import Backend
from runner.engine.fair_share import FairShare
from runner.engine.step_output import StepOutput
from runner.errors import HearthError, InternalError
from runner.types import EmbeddingForm, Embeddings, GenerateRequest

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _EmbedRequest:
    id: str
    inputs: list[list[int]]
    priority: int
    client: str
    form: EmbeddingForm
    vectors: list[tuple[float, ...]] = field(default_factory=list)  # of inputs or their tokens
    done: int = 0  # inputs


class EmbeddingQueue:
    """Embedding requests by priority, by whose turn it is, and then by arrival."""

    def __init__(self, backend: Backend, share: FairShare) -> None:
        self._backend = backend
        self._share = share
        self._waiting: list[_EmbedRequest] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: GenerateRequest, inputs: Sequence[Sequence[int]]) -> None:
        """Queue inputs, each of which fits in a batch, with the id, priority, client and form of
        request."""
        lists = [list(tokens) for tokens in inputs]
        self._share.enter(request.client)
        shares = (request.priority, request.client, request.form)
        self._waiting.append(_EmbedRequest(request.id, lists, *shares))

    def cancel(self, id: str) -> bool:
        """Forget the request. False: there is none of that id."""
        found = [request for request in self._waiting if request.id == id]
        for request in found:
            self._remove(request)
        return bool(found)

    def step(self, output: StepOutput) -> None:
        """Compute at most one batch of one request, so that streams go on."""
        request = min(self._waiting, key=lambda one: (one.priority, self._share.turn(one.client)))
        batch = self._next_batch(request)
        try:
            vectors = self._backend.embed(batch, request.form)
        except Exception as error:
            log.error("an embedding request failed", exc_info=error)
            self._remove(request)
            if not isinstance(error, HearthError):
                error = InternalError(f"the embedding failed: {error}")
            output.errors.append((request.id, error))
            return
        self._share.charge(request.client, sum(map(len, batch)))
        request.vectors += [tuple(vector) for vector in vectors]
        request.done += len(batch)
        if request.done == len(request.inputs):
            self._remove(request)
            total = sum(map(len, request.inputs))
            output.embeddings.append((request.id, Embeddings(tuple(request.vectors), total)))

    def _remove(self, request: _EmbedRequest) -> None:
        self._waiting.remove(request)
        self._share.leave(request.client)

    def _next_batch(self, request: _EmbedRequest) -> list[list[int]]:
        start = end = request.done
        tokens = 0
        while end < len(request.inputs):
            tokens += len(request.inputs[end])
            if end > start and tokens > self._backend.capacity.batch_tokens:
                break
            end += 1
        return request.inputs[start:end]
