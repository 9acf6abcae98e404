"""/v1/files: upload, list, show, read and delete files."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import BinaryIO, Literal, get_args

from runner.errors import InvalidRequest
from runner.server.caller import current_caller
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.openai.answers import DeletedFile, FileList, FileObject
from runner.server.openai.files.file_store import (
    FileStore,
    FileWriter,
    StoredFile,
    full,
    new_file_id,
)
from runner.server.openai.files.form import FormReader
from runner.server.openai.paging import list_page, page_query
from runner.server.query import query_params
from runner.server.routes import route

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
MIN_LIFETIME_S = 3600
MAX_LIFETIME_S = 30 * 86400
MAX_PAGE = 10_000
_PIECE_BYTES = 1 << 20  # written at once
_READ_BYTES = 64 * 1024  # of a file that is sent: thousands of clients may read none of it


@route("POST", "/v1/files", scope="inference", takes="multipart/form-data")
async def upload_file(http: HttpRequest) -> FileObject:
    """Store a file, sent as a form with the fields file and purpose. expires_after[anchor] and
    expires_after[seconds] set how long it is kept."""
    settings, store = http.services.settings, file_store_of(http)
    owner = current_caller().id
    free_bytes = await asyncio.to_thread(store.free_bytes, settings.max_files_size, owner)
    max_bytes = min(settings.max_file_size, free_bytes)
    upload = IncomingFile(settings.max_file_size, max_bytes, settings.max_files_size)
    form = FormReader(http.headers.get("content-type", ""), upload.add)
    ident = new_file_id()
    incoming = await asyncio.to_thread(store.writing, ident)
    try:
        await receive(http, form, upload, incoming)
        file = replace(_file(ident, form, incoming.size_bytes), owner=owner)
        await asyncio.to_thread(store.keep, file, incoming, settings.max_files_size)
    finally:
        await asyncio.shield(asyncio.to_thread(incoming.drop))
    return file_object(file)


@route("GET", "/v1/files", scope="inference")
async def list_files(http: HttpRequest) -> FileList:
    """List the stored files, newest first unless order=asc; purpose, limit and after select a
    page."""
    text, owner = http.scope["query_string"], current_caller().sees
    query, purpose = page_query(text, MAX_PAGE, MAX_PAGE), query_params(text).get("purpose")
    files, more = await asyncio.to_thread(file_store_of(http).page, query, purpose, owner)
    data = [file_object(file) for file in files]
    return {**list_page(data, more), "data": data}


@route("GET", "/v1/files/{id}", scope="inference")
async def show_file(http: HttpRequest) -> FileObject:
    """Get a file's metadata."""
    return file_object(await _find(http))


@route("GET", "/v1/files/{id}/content", scope="inference", streams="application/octet-stream")
async def read_file(http: HttpRequest) -> None:
    """Get the content of a file."""
    path = file_store_of(http).path_of((await _find(http)).id)
    try:
        stream = await asyncio.to_thread(path.open, "rb")
    except FileNotFoundError:
        raise unknown_file(http.parameter("id")) from None
    with stream:
        async with http.cancelled_on_disconnect():
            await http.start("application/octet-stream")
            await _copy(stream, http)
            await http.finish()


@route("DELETE", "/v1/files/{id}", scope="inference")
async def delete_file(http: HttpRequest) -> DeletedFile:
    """Delete a file."""
    ident = http.parameter("id")
    if not await asyncio.to_thread(file_store_of(http).delete, ident, current_caller().sees):
        raise unknown_file(ident)
    return {"id": ident, "object": "file", "deleted": True}


def file_store_of(http: HttpRequest) -> FileStore:
    """The daemon's stored files. Anthropic's have other fields and are named in messages, so its
    clients are refused."""
    if http.of_anthropic:
        message = "hearth has no files of Anthropic's API: send their content in the messages"
        raise HttpError(404, "endpoint_not_supported", message)
    return http.services.batches.files


def file_object(file: StoredFile) -> FileObject:
    """A file in OpenAI's words."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def unknown_file(ident: str) -> HttpError:
    """There is none with this id."""
    return HttpError(404, "file_not_found", f"no such file: {ident[:80]!r}")


class IncomingFile:
    """The bytes of a file between the form and the disk, counted."""

    def __init__(self, file_bytes: int, max_bytes: int, total_bytes: int) -> None:
        self._file_bytes = file_bytes
        self._max_bytes = max_bytes
        self._total_bytes = total_bytes
        self._size_bytes = 0
        self._pieces: list[bytes] = []
        self.waiting_bytes = 0

    def add(self, data: bytes) -> None:
        """Count data and keep it. Raises HttpError 413."""
        self._size_bytes += len(data)
        if self._size_bytes > self._file_bytes:
            raise HttpError(
                413,
                "file_too_large",
                f"the file is longer than {self._file_bytes} bytes (HEARTH_MAX_FILE_SIZE)",
                connection="close",
            )
        if self._size_bytes > self._max_bytes:
            raise full(self._total_bytes)
        self._pieces.append(data)
        self.waiting_bytes += len(data)

    def take(self) -> bytes:
        """What was kept since the last time."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self.waiting_bytes = 0
        return data


async def receive(
    http: HttpRequest, form: FormReader, upload: IncomingFile, incoming: FileWriter
) -> None:
    """The whole form, its file into incoming. Raises InvalidRequest, HttpError, ClientDisconnected,
    StorageFailed."""
    async for data in http.chunks():
        form.feed(data)
        if upload.waiting_bytes >= _PIECE_BYTES:
            await asyncio.to_thread(incoming.write, upload.take())
    form.finish()
    await asyncio.to_thread(incoming.write, upload.take())


def _file(ident: str, form: FormReader, size_bytes: int) -> StoredFile:
    """The file of a form. Raises InvalidRequest."""
    fields = dict(form.items)
    purpose = fields.get("purpose")
    known = get_args(Purpose)
    if purpose is None or purpose not in known:
        shown = "missing" if purpose is None else f"{purpose[:40]!r}"
        raise InvalidRequest(
            f"purpose is {shown}: expected one of {', '.join(known)}", param="purpose"
        )
    now = int(time.time())
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    expires_at = None
    if anchor is not None or seconds is not None:
        if anchor != "created_at" or not (seconds and seconds.isascii() and seconds.isdigit()):
            raise InvalidRequest(
                "expires_after requires anchor=created_at and seconds", param="expires_after"
            )
        expires_at = now + lifetime_s(int(seconds[:20]))
    return StoredFile(ident, form.filename or "file", purpose, size_bytes, now, expires_at)


def lifetime_s(seconds: int) -> int:
    """seconds, if a file may stay for so long. Raises InvalidRequest."""
    if not MIN_LIFETIME_S <= seconds <= MAX_LIFETIME_S:
        raise InvalidRequest(
            f"seconds={seconds}: expected {MIN_LIFETIME_S} to {MAX_LIFETIME_S}",
            param="expires_after",
        )
    return seconds


async def _copy(stream: BinaryIO, http: HttpRequest) -> None:
    while piece := await asyncio.to_thread(stream.read, _READ_BYTES):
        await http.write(piece)


async def _find(http: HttpRequest) -> StoredFile:
    ident = http.parameter("id")
    file = await asyncio.to_thread(file_store_of(http).find, ident, current_caller().sees)
    if file is None:
        raise unknown_file(ident)
    return file
