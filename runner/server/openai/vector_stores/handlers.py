"""/v1/vector_stores: make, show, change, delete and search vector stores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from runner.errors import Conflict, InvalidRequest, Unsupported
from runner.models.capabilities import model_capabilities
from runner.server.caller import current_caller
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.openai.answers import (
    DeletedVectorStore,
    VectorStoreList,
    VectorStoreObject,
    VectorStoreSearchResults,
)
from runner.server.openai.paging import list_page, page_query
from runner.server.openai.vector_stores.vector_database import Found, NewFile, VectorStore
from runner.server.openai.vector_stores.wire import (
    CreateVectorStoreRequest,
    FileToAdd,
    SearchRequest,
    UpdateVectorStoreRequest,
)
from runner.server.routes import route
from runner.server.services import Services

_DAY_S = 86400


@route("POST", "/v1/vector_stores", scope="inference")
async def create_vector_store(
    http: HttpRequest, body: CreateVectorStoreRequest
) -> VectorStoreObject:
    """Create a vector store with embeddings of embedding_model, HEARTH_EMBEDDING_MODEL or an
    installed embedding model. Its files are read in the background."""
    services = http.services
    wanted = [
        FileToAdd(file_id=ident, chunking_strategy=body.chunking_strategy)
        for ident in body.file_ids or ()
    ]
    files = await files_to_add(services, wanted)
    model = await asyncio.to_thread(_embedding_model, services, body.embedding_model)
    await asyncio.to_thread(services.library.find, model)
    days = None if body.expires_after is None else body.expires_after.days
    store = await asyncio.to_thread(
        services.vectors.database.create,
        current_caller().id,
        body.name or "",
        body.metadata or {},
        model,
        days,
    )
    await add_files(services, store, files)
    return await _object(services, store)


@route("GET", "/v1/vector_stores", scope="inference")
async def list_vector_stores(http: HttpRequest) -> VectorStoreList:
    """List the vector stores, newest first unless order=asc; limit, after and before select a
    page."""
    query, services = page_query(http.scope["query_string"]), http.services
    stores, more = await asyncio.to_thread(
        services.vectors.database.page, query, current_caller().sees
    )
    data = [await _object(services, store) for store in stores]
    return {**list_page(data, more), "data": data}


@route("GET", "/v1/vector_stores/{id}", scope="inference")
async def show_vector_store(http: HttpRequest) -> VectorStoreObject:
    """Get a vector store."""
    return await _object(http.services, await store_of(http))


@route("POST", "/v1/vector_stores/{id}", scope="inference")
async def update_vector_store(
    http: HttpRequest, body: UpdateVectorStoreRequest
) -> VectorStoreObject:
    """Change the name, the metadata or the expiry of a vector store; null removes an expiry."""
    store = await store_of(http)
    changes: dict[str, Any] = {}
    if body.name is not None:
        changes["name"] = body.name
    if body.metadata is not None:
        changes["metadata"] = json.dumps(body.metadata)
    if "expires_after" in body.model_fields_set:
        changes["days"] = body.expires_after and body.expires_after.days
    await asyncio.to_thread(lambda: http.services.vectors.database.change(store.id, **changes))
    return await _object(http.services, await store_of(http))


@route("DELETE", "/v1/vector_stores/{id}", scope="inference")
async def delete_vector_store(http: HttpRequest) -> DeletedVectorStore:
    """Delete a vector store. The files themselves stay."""
    store = await store_of(http)
    await asyncio.to_thread(http.services.vectors.database.delete, store.id)
    return {"id": store.id, "object": "vector_store.deleted", "deleted": True}


@route("POST", "/v1/vector_stores/{id}/search", scope="inference")
async def search_vector_store(http: HttpRequest, body: SearchRequest) -> VectorStoreSearchResults:
    """Find the chunks of a vector store that are nearest to a query."""
    store = await store_of(http)
    async with http.cancelled_on_disconnect():
        found = await search(http.services, [store], body)
    return {
        "object": "vector_store.search_results.page",
        "search_query": body.queries,
        "data": [{**shown(each), "content": [{"type": "text", "text": each.text}]}
                 for each in found],
        "has_more": False,
        "next_page": None,
    }  # fmt: skip


async def search(
    services: Services, stores: Sequence[VectorStore], asked: SearchRequest
) -> list[Found]:
    """What is nearest in any of stores, best first. Raises InvalidRequest, Conflict for one that
    has expired, and what embedding raises."""
    if not all(query.strip() for query in asked.queries):
        raise InvalidRequest("query is empty", param="query")
    only, vectors = asked.filter, services.vectors
    found: list[Found] = []
    for store in stores:
        if store.expired:
            raise Conflict(f"the vector store {store.id} has expired; make another one")
        queries = await vectors.embedder.embed(store.model, asked.queries)
        await asyncio.to_thread(vectors.database.use, store.id)
        found += await asyncio.to_thread(
            vectors.database.search, store.id, queries, only, asked.max_num_results
        )
    options = asked.ranking_options
    threshold = (options.score_threshold if options else None) or 0.0
    best = sorted(found, key=lambda each: -each.score)[: asked.max_num_results]
    return [each for each in best if each.score >= threshold]


def shown(found: Found) -> dict[str, Any]:
    """A chunk that was found, without its text."""
    return {
        "file_id": found.file.id,
        "filename": found.file.filename,
        "score": found.score,
        "attributes": found.file.attributes,
    }


async def store_of(http: HttpRequest) -> VectorStore:
    """The vector store of the path. Raises HttpError 404."""
    return await find_store(http.services, http.parameter("id"))


async def find_store(services: Services, ident: str) -> VectorStore:
    """The vector store with this id that the caller may see. Raises HttpError 404."""
    found = await asyncio.to_thread(services.vectors.database.find, ident, current_caller().sees)
    if found is None:
        raise HttpError(404, "vector_store_not_found", f"no such vector store: {ident[:80]!r}")
    return found


async def files_to_add(services: Services, wanted: Sequence[FileToAdd]) -> list[NewFile]:
    """The stored files that are wanted. Raises InvalidRequest for one that is not there."""
    found = []
    for file in wanted:
        stored = await asyncio.to_thread(
            services.batches.files.find, file.file_id, current_caller().sees
        )
        if stored is None:
            raise InvalidRequest(f"no such file: {file.file_id[:80]!r}", param="file_id")
        limits = file.limits
        tokens = limits.max_chunk_size_tokens, limits.chunk_overlap_tokens
        found.append(NewFile(stored.id, stored.filename, *tokens, file.attributes or {}))
    return found


async def add_files(
    services: Services, store: VectorStore, files: Sequence[NewFile], batch: str | None = None
) -> None:
    """Begin to read files into a store. Raises Conflict for one that has expired, HttpError 413,
    QueueFull, StorageFailed."""
    if store.expired:
        raise Conflict(f"the vector store {store.id} has expired; make another one")
    with services.vectors.room(len(files)):
        added = await asyncio.to_thread(services.vectors.database.add_files, store, files, batch)
        for file in added:
            services.vectors.add(store, file, services.batches.files.path_of(file.id))


def _embedding_model(services: Services, wanted: str | None) -> str:
    """The model of a store that asks for wanted. Raises Unsupported where none is installed."""
    if named := wanted or services.settings.embedding_model:
        return named
    for stored in services.library.models():
        if stored.fault is None and model_capabilities(services.library.read(stored)).embedding:
            return stored.name.short_with_tag
    raise Unsupported(
        "no embedding model is installed: pull one (hearth pull all-minilm), or name one with "
        "embedding_model or HEARTH_EMBEDDING_MODEL",
        param="embedding_model",
    )


async def _object(services: Services, store: VectorStore) -> VectorStoreObject:
    counts, size_bytes = await asyncio.to_thread(services.vectors.database.counts, store.id)
    expires = None if store.days is None else {"anchor": "last_active_at", "days": store.days}
    return {
        "id": store.id,
        "object": "vector_store",
        "name": store.name,
        "created_at": store.created_at,
        "last_active_at": store.active_at,
        "status": "expired"
        if store.expired
        else "in_progress" if counts["in_progress"] else "completed",
        "usage_bytes": 0 if store.expired else size_bytes,
        "file_counts": counts,
        "metadata": store.metadata,
        "expires_after": expires,
        "expires_at": None if store.days is None else store.active_at + store.days * _DAY_S,
        "embedding_model": store.model,
    }  # fmt: skip
