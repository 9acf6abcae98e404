"""Embeddings of a model that generates: each input is a sequence of which only the prompt is
computed, and the state of its last token is the vector, as Ollama has it.

Owns which sequences belong to which request, and its vectors so far. Knows no backend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from runner.errors import InternalError
from runner.types import Embeddings


@dataclass(slots=True)
class _Request:
    vectors: dict[str, tuple[float, ...]]  # by sequence, in the order of the inputs
    waiting: set[str]  # sequences
    tokens: int
    normalize: bool


class PromptEmbeddings:
    """The requests whose inputs are being computed."""

    def __init__(self) -> None:
        self._requests: dict[str, _Request] = {}
        self._owners: dict[str, str] = {}  # requests by their sequences

    def add(self, id: str, inputs: Sequence[Sequence[int]], *, normalize: bool) -> list[str]:
        """The ids of the sequences that a request is made of, one for each input."""
        sequences = [f"{id}/{index}" for index in range(len(inputs))]
        vectors: dict[str, tuple[float, ...]] = dict.fromkeys(sequences, ())
        self._requests[id] = _Request(vectors, set(sequences), sum(map(len, inputs)), normalize)
        self._owners.update(dict.fromkeys(sequences, id))
        return sequences

    def owner(self, sequence: str) -> str | None:
        """The request that a sequence belongs to."""
        return self._owners.get(sequence)

    def take(self, sequence: str, values: Sequence[float]) -> tuple[str, Embeddings] | None:
        """The state of a sequence's last token is known; the request's id and vectors when that
        was the last one. Raises InternalError for what is no vector."""
        length = math.sqrt(math.fsum(value * value for value in values))
        if not math.isfinite(length) or length == 0.0:
            raise InternalError("the model produced an invalid embedding (NaN or all zeros)")
        id = self._owners[sequence]
        request = self._requests[id]
        size = length if request.normalize else 1.0
        request.vectors[sequence] = tuple(value / size for value in values)
        request.waiting.discard(sequence)
        if request.waiting:
            return None
        self.remove(id)
        return id, Embeddings(tuple(request.vectors.values()), request.tokens)

    def remove(self, id: str) -> set[str]:
        """Forget a request; its sequences that are still waiting. None where there is no such."""
        request = self._requests.pop(id, None)
        if request is None:
            return set()
        for sequence in request.vectors:
            del self._owners[sequence]
        return request.waiting
