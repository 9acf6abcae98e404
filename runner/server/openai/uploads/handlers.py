"""/v1/uploads: a large file in parts."""

from __future__ import annotations

import asyncio
import time

from runner.errors import Conflict, InvalidRequest
from runner.server.caller import current_caller
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.ids import new_id
from runner.server.openai.answers import UploadObject, UploadPart
from runner.server.openai.files.file_store import StoredFile, full
from runner.server.openai.files.form import FormReader
from runner.server.openai.files.handlers import IncomingFile, file_object, file_store_of, receive
from runner.server.openai.uploads.upload_store import (
    STAY_S,
    StoredUpload,
    UploadStore,
    new_part_id,
)
from runner.server.openai.uploads.wire import CompleteUploadRequest, CreateUploadRequest
from runner.server.routes import route

MAX_PART_BYTES = 64 << 20


@route("POST", "/v1/uploads", scope="inference")
async def create_upload(http: HttpRequest, body: CreateUploadRequest) -> UploadObject:
    """Begin an upload in parts, which must end within an hour."""
    settings = http.services.settings
    if body.bytes > settings.max_file_size:
        raise InvalidRequest(
            f"bytes={body.bytes}: a file has at most {settings.max_file_size} "
            "(HEARTH_MAX_FILE_SIZE)",
            param="bytes",
        )
    upload = StoredUpload(
        new_id("upload").replace("-", "_"),
        current_caller().id,
        body.filename,
        body.purpose,
        body.bytes,
        int(time.time()),
        stay_s=None if body.expires_after is None else body.expires_after.seconds,
    )
    await asyncio.to_thread(_store(http).create, upload)
    return _object(upload, None)


@route("POST", "/v1/uploads/{id}/parts", scope="inference", takes="multipart/form-data")
async def add_part(http: HttpRequest) -> UploadPart:
    """Upload a part of up to 64 MiB in the field data. Parts may be sent in parallel."""
    upload = await _find(http)
    if upload.status != "pending":
        raise Conflict(f"the upload {upload.id} is {upload.status}, not pending", param="id")
    files, max_bytes = file_store_of(http), http.services.settings.max_files_size
    free = await asyncio.to_thread(files.free_bytes, max_bytes, upload.owner)
    if not free:
        raise full(max_bytes)
    incoming = IncomingFile(MAX_PART_BYTES, free, max_bytes)
    form = FormReader(http.headers.get("content-type", ""), incoming.add, "data")
    ident = new_part_id()
    part = await asyncio.to_thread(files.writing, ident)
    try:
        await receive(http, form, incoming, part)
        made = await asyncio.to_thread(_store(http).add_part, upload, part, ident, max_bytes)
    finally:
        await asyncio.shield(asyncio.to_thread(part.drop))
    return {"id": ident, "object": "upload.part", "created_at": made, "upload_id": upload.id}


@route("POST", "/v1/uploads/{id}/complete", scope="inference")
async def complete_upload(http: HttpRequest, body: CompleteUploadRequest) -> UploadObject:
    """Complete an upload."""
    upload, max_bytes = await _find(http), http.services.settings.max_files_size
    done = await asyncio.to_thread(
        _store(http).complete, upload, body.part_ids, body.md5, max_bytes
    )
    file = await asyncio.to_thread(file_store_of(http).find, done.file or "", upload.owner)
    return _object(done, file)


@route("POST", "/v1/uploads/{id}/cancel", scope="inference")
async def cancel_upload(http: HttpRequest) -> UploadObject:
    """Cancel an upload."""
    return _object(await asyncio.to_thread(_store(http).cancel, await _find(http)), None)


async def _find(http: HttpRequest) -> StoredUpload:
    ident = http.parameter("id")
    upload = await asyncio.to_thread(_store(http).find, ident, current_caller().sees)
    if upload is None:
        raise HttpError(404, "upload_not_found", f"no such upload: {ident[:80]!r}")
    return upload


def _store(http: HttpRequest) -> UploadStore:
    return http.services.uploads


def _object(upload: StoredUpload, file: StoredFile | None) -> UploadObject:
    return {
        "id": upload.id,
        "object": "upload",
        "bytes": upload.size_bytes,
        "created_at": upload.created_at,
        "expires_at": upload.created_at + STAY_S,
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": upload.status,
        "file": None if file is None else file_object(file),
    }
