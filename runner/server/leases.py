"""The use of a model by one HTTP request, and what a model must be able to do for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from runner.errors import Unsupported
from runner.models.lease import Lease
from runner.server.http_request import HttpRequest
from runner.server.keep_alive import keep_alive_s


@asynccontextmanager
async def leased(
    http: HttpRequest, model: str, keep_alive: Any, options: Mapping[str, Any] | None = None
) -> AsyncIterator[Lease]:
    """A model, for as long as the client waits. The body must have been read. options are checked.
    Raises what leasing raises, InvalidRequest for the keep_alive."""
    keep_s = keep_alive_s(keep_alive)
    async with (
        http.cancelled_on_disconnect(),
        http.services.models.lease(model, options or {}, keep_s) as lease,
    ):
        yield lease


def require_embedding(lease: Lease, *, trained: bool = False) -> None:
    """Raises Unsupported when the model gives no embeddings. trained: a model that generates, whose
    states tell texts apart badly, will not do."""
    name = lease.bundle.name.short
    if lease.capabilities.rerank:
        raise Unsupported(f"{name} is a reranker; use /v1/rerank or /v1/score")
    if trained and not lease.capabilities.embedding:
        raise Unsupported(f"{name} generates text; use an embedding model or a reranker")
