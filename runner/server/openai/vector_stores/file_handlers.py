"""/v1/vector_stores/{id}/files and file_batches: the files of a vector store."""

from __future__ import annotations

import asyncio

from runner.errors import InvalidRequest
from runner.server.body_budget import hold_stored
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.openai.answers import (
    DeletedVectorStoreFile,
    VectorStoreFile,
    VectorStoreFileBatch,
    VectorStoreFileContent,
    VectorStoreFileList,
)
from runner.server.openai.paging import list_page, page_query
from runner.server.openai.vector_stores.handlers import add_files, files_to_add, store_of
from runner.server.openai.vector_stores.vector_database import StoreFile, VectorDatabase
from runner.server.openai.vector_stores.wire import (
    CreateFileBatchRequest,
    FileToAdd,
    UpdateFileRequest,
)
from runner.server.query import query_params
from runner.server.routes import route

_STATUSES = ("in_progress", "completed", "cancelled", "failed")


@route("POST", "/v1/vector_stores/{id}/files", scope="inference")
async def add_file(http: HttpRequest, body: FileToAdd) -> VectorStoreFile:
    """Add a stored file to a vector store; it is read in the background."""
    store = await store_of(http)
    await add_files(http.services, store, await files_to_add(http.services, [body]))
    return await _shown(http, body.file_id)


@route("GET", "/v1/vector_stores/{id}/files", scope="inference")
async def list_files(http: HttpRequest) -> VectorStoreFileList:
    """List the files of a vector store; filter selects by status."""
    return await _page(http, None)


@route("GET", "/v1/vector_stores/{id}/files/{file}", scope="inference")
async def show_file(http: HttpRequest) -> VectorStoreFile:
    """Get the status of a file of a vector store."""
    return _object(await _find(http))


@route("POST", "/v1/vector_stores/{id}/files/{file}", scope="inference")
async def update_file(http: HttpRequest, body: UpdateFileRequest) -> VectorStoreFile:
    """Replace the attributes of a file."""
    file = await _find(http)
    await asyncio.to_thread(_database(http).set_attributes, file, body.attributes or {})
    return await _shown(http, file.id)


@route("DELETE", "/v1/vector_stores/{id}/files/{file}", scope="inference")
async def remove_file(http: HttpRequest) -> DeletedVectorStoreFile:
    """Remove a file from a vector store. The file itself stays."""
    file = await _find(http)
    await asyncio.to_thread(_database(http).remove_file, file)
    return {"id": file.id, "object": "vector_store.file.deleted", "deleted": True}


@route("GET", "/v1/vector_stores/{id}/files/{file}/content", scope="inference")
async def read_file(http: HttpRequest) -> VectorStoreFileContent:
    """Get the chunks of a file."""
    file = await _find(http)
    hold_stored(file.size_bytes)
    texts = await asyncio.to_thread(_database(http).texts, file)
    return {
        "object": "vector_store.file_content.page",
        "data": [{"type": "text", "text": text} for text in texts],
        "has_more": False,
        "next_page": None,
    }


@route("POST", "/v1/vector_stores/{id}/file_batches", scope="inference")
async def create_batch(http: HttpRequest, body: CreateFileBatchRequest) -> VectorStoreFileBatch:
    """Add several stored files to a vector store."""
    store = await store_of(http)
    files = await files_to_add(http.services, body.wanted)
    batch, _ = await asyncio.to_thread(_database(http).create_batch, store.id)
    await add_files(http.services, store, files, batch)
    return await _batch(http, batch)


@route("GET", "/v1/vector_stores/{id}/file_batches/{batch}", scope="inference")
async def show_batch(http: HttpRequest) -> VectorStoreFileBatch:
    """Get the status of a batch of files."""
    return await _batch(http, http.parameter("batch"))


@route("POST", "/v1/vector_stores/{id}/file_batches/{batch}/cancel", scope="inference")
async def cancel_batch(http: HttpRequest) -> VectorStoreFileBatch:
    """Cancel a batch of files."""
    batch = http.parameter("batch")
    await _batch(http, batch)
    await asyncio.to_thread(_database(http).cancel, http.parameter("id"), batch)
    return await _batch(http, batch)


@route("GET", "/v1/vector_stores/{id}/file_batches/{batch}/files", scope="inference")
async def list_batch(http: HttpRequest) -> VectorStoreFileList:
    """List the files of a batch; filter selects by status."""
    batch = http.parameter("batch")
    await _batch(http, batch)
    return await _page(http, batch)


async def _page(http: HttpRequest, batch: str | None) -> VectorStoreFileList:
    store, text = await store_of(http), http.scope["query_string"]
    status = query_params(text).get("filter")
    if status is not None and status not in _STATUSES:
        raise InvalidRequest(f"filter={status[:40]!r}: expected one of {', '.join(_STATUSES)}",
                             param="filter")  # fmt: skip
    files, more = await asyncio.to_thread(
        _database(http).files, store.id, page_query(text), status, batch
    )
    data = [_object(file) for file in files]
    return {**list_page(data, more), "data": data}


async def _batch(http: HttpRequest, batch: str) -> VectorStoreFileBatch:
    store = await store_of(http)
    made = await asyncio.to_thread(_database(http).batch_made, store.id, batch)
    if made is None:
        raise HttpError(404, "file_batch_not_found", f"no such file batch: {batch[:80]!r}")
    counts, _ = await asyncio.to_thread(_database(http).counts, store.id, batch)
    return {
        "id": batch,
        "object": "vector_store.files_batch",
        "vector_store_id": store.id,
        "created_at": made,
        "status": "in_progress"
        if counts["in_progress"]
        else "cancelled" if counts["cancelled"] else "completed",
        "file_counts": counts,
    }  # fmt: skip


async def _shown(http: HttpRequest, ident: str) -> VectorStoreFile:
    file = await asyncio.to_thread(_database(http).file, http.parameter("id"), ident)
    if file is None:
        raise _unknown(ident)
    return _object(file)


async def _find(http: HttpRequest) -> StoreFile:
    store, ident = await store_of(http), http.parameter("file")
    file = await asyncio.to_thread(_database(http).file, store.id, ident)
    if file is None:
        raise _unknown(ident)
    return file


def _unknown(ident: str) -> HttpError:
    return HttpError(404, "file_not_found", f"no such file in the vector store: {ident[:80]!r}")


def _database(http: HttpRequest) -> VectorDatabase:
    return http.services.vectors.database


def _object(file: StoreFile) -> VectorStoreFile:
    limits = {
        "max_chunk_size_tokens": file.chunk_tokens,
        "chunk_overlap_tokens": file.overlap_tokens,
    }
    return {
        "id": file.id,
        "object": "vector_store.file",
        "vector_store_id": file.store,
        "created_at": file.created_at,
        "status": file.status,
        "last_error": file.error,
        "usage_bytes": file.size_bytes,
        "attributes": file.attributes,
        "chunking_strategy": {"type": "static", "static": limits},
    }
