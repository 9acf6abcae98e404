"""Computes the embeddings for vector stores."""

from __future__ import annotations

from collections.abc import Sequence

from runner.models.manager import Manager
from runner.server.leases import embeddings_of, require_embedding
from runner.server.openai.vector_stores.indexer import Embedder


class ModelEmbedder(Embedder):
    """By the installed models."""

    def __init__(self, models: Manager) -> None:
        self._models = models

    async def embed(
        self, model: str, texts: Sequence[str], priority: int = 0
    ) -> tuple[tuple[float, ...], ...]:
        async with self._models.lease(model, {}, None) as lease:
            require_embedding(lease)
            found = await embeddings_of(lease, list(texts), truncate=True, priority=priority)
        return tuple(tuple(vector) for vector in found.vectors)

    async def context_length(self, model: str) -> int:
        async with self._models.lease(model, {}, None) as lease:
            require_embedding(lease)
            return lease.context_length
