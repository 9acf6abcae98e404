"""Files for /api/create: HEAD and POST /api/blobs/{digest} from anywhere, straight to the store's
disk, POST /api/blobs/upload where the digest is not known, and POST /api/blobs from a command of
the store's own user, which has put the file there."""

from __future__ import annotations

from runner.library.blobs import has_blob, receive_blob, receive_upload, take_file
from runner.server.answers import StatusResponse
from runner.server.console.answers import UploadedBlob
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import ProgressStream
from runner.server.ollama.wire import IncomingRequest
from runner.server.routes import route
from runner.server.sse import NDJSON


@route("POST", "/api/blobs/upload", takes="application/octet-stream")
async def upload_blob(http: HttpRequest) -> UploadedBlob:
    """Store the body and return its digest, which browsers cannot compute for a large file. If the
    connection breaks, nothing is stored."""
    digest, size_bytes = await receive_upload(
        http.services.library, http.body_size_bytes, http.chunks()
    )
    return {"digest": digest, "size": size_bytes}


@route("HEAD", "/api/blobs/{digest}")
async def head_blob(http: HttpRequest) -> None:
    """200 if the store has the blob."""
    digest = http.parameter("digest")
    if not has_blob(http.services.library, digest):
        raise HttpError(404, "blob_missing", f"blob {digest} is not in the store")
    await http.reply_bytes(b"", "application/json")


@route("POST", "/api/blobs/{digest}", takes="application/octet-stream")
async def put_blob(http: HttpRequest) -> None:
    """Store the body, which must have this digest. If the connection breaks, nothing is stored."""
    is_new = await receive_blob(
        http.services.library, http.parameter("digest"), http.body_size_bytes, http.chunks()
    )
    await http.reply_bytes(b"", "application/json", 201 if is_new else 200)


@route("POST", "/api/blobs", streams=NDJSON)
async def take_blob(http: HttpRequest, body: IncomingRequest) -> StatusResponse | None:
    """Turn a file in the store's folder for incoming files into a blob; progress as NDJSON, the
    digest in the last line. 400 when it is not there: the client means another store. The file is
    gone afterwards, also when the client leaves before the end."""
    answer = ProgressStream(http, body.stream is not False)
    async with http.cancelled_on_disconnect():
        digest, size_bytes = await take_file(http.services.library, body.file, answer.report)
        return await answer.finish({"status": "success", "digest": digest, "total": size_bytes})
