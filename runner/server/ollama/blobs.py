"""Files for /api/create: HEAD and POST /api/blobs/{digest} from anywhere, straight to the store's
disk, and POST /api/blobs from a command of the store's own user, which has put the file there."""

from __future__ import annotations

import asyncio

from registry.blobs import BlobWriter
from registry.digest import Digest
from runner.library.progress import run_with_progress
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import ProgressStream
from runner.server.ollama.wire import IncomingRequest

_WRITE_BYTES = 1 << 20  # one switch to a thread for so much, not for each network packet


async def has_blob(http: HttpRequest) -> None:
    """200 when the store has the blob."""
    digest = _digest(http)
    if not http.services.library.store.has_blob(digest):
        raise HttpError(404, "blob_missing", f"blob {digest} is not in the store")
    await http.reply_bytes(b"", "application/json")


async def put_blob(http: HttpRequest) -> None:
    """Store the body, which must have this digest. A connection that breaks leaves nothing."""
    digest = _digest(http)
    store = http.services.library.store
    if store.has_blob(digest):
        async for _ in http.chunks():
            pass
        await http.reply_bytes(b"", "application/json")
        return
    with store.blob_writer(digest, http.body_size_bytes) as writer:
        await _receive(http, writer)
        await asyncio.to_thread(writer.commit)
    await http.reply_bytes(b"", "application/json", 201)


async def take_blob(http: HttpRequest) -> None:
    """Make a file of the store's folder for incoming files a blob: progress as NDJSON, the digest
    in the last line. 400 when it is not there: the client means another store. The file is gone
    afterwards, also when the client leaves before the end. See registry.incoming_files."""
    asked = await http.read(IncomingRequest)
    store = http.services.library.store
    size_bytes = await asyncio.to_thread(store.incoming_size, asked.file)
    answer = ProgressStream(http, asked.stream is not False)
    async with http.cancelled_on_disconnect():
        digest, _ = await run_with_progress(
            lambda advance: store.take_incoming(asked.file, advance),
            "verifying",
            size_bytes,
            answer.tell,
        )
        await answer.finish({"status": "success", "digest": str(digest), "total": size_bytes})


def _digest(http: HttpRequest) -> Digest:
    return Digest.parse(http.parameter("digest").replace("sha256-", "sha256:", 1).lower())


async def _receive(http: HttpRequest, writer: BlobWriter) -> None:
    held = bytearray()
    async for chunk in http.chunks():
        held += chunk
        if len(held) >= _WRITE_BYTES:
            await asyncio.to_thread(writer.write, bytes(held))
            held.clear()
    if held:
        await asyncio.to_thread(writer.write, bytes(held))
