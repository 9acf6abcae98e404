"""/v1/batches: create, list, show and cancel batches."""

from __future__ import annotations

import asyncio
import time

from runner.errors import Conflict, InvalidRequest
from runner.server.caller import current_caller
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.ids import new_id
from runner.server.openai.answers import BatchList, BatchObject
from runner.server.openai.batches.executor import BatchExecutor
from runner.server.openai.batches.journal import Batch
from runner.server.openai.batches.wire import WINDOW_S, BatchRequest, batch_object
from runner.server.openai.files.file_store import full
from runner.server.openai.files.handlers import (
    lifetime_s,
    unknown_file,
)
from runner.server.openai.paging import PageQuery, list_page, page_limit
from runner.server.query import query_params
from runner.server.routes import route

MAX_PAGE = 100
_USUAL_PAGE = 20


@route("POST", "/v1/batches", scope="inference")
async def create_batch(http: HttpRequest, body: BatchRequest) -> BatchObject:
    """Answer the requests in a file, with a lower priority than live requests. The file was
    uploaded with purpose=batch; each line holds custom_id, method, url and body."""
    stay = body.output_expires_after
    output_stay_s = None if stay is None else lifetime_s(stay.seconds)
    batches = _batches(http)
    caller = current_caller()
    file = await asyncio.to_thread(batches.files.find, body.input_file_id, caller.sees)
    if file is None:
        raise unknown_file(body.input_file_id)
    if file.purpose != "batch":
        raise InvalidRequest(
            f"the file has purpose={file.purpose!r}; upload it with purpose='batch'",
            param="input_file_id",
        )
    max_bytes = http.services.settings.max_files_size
    if not await asyncio.to_thread(batches.files.free_bytes, max_bytes, caller.id):
        raise full(max_bytes)  # its results are files
    now = int(time.time())
    batch = Batch(
        id=new_id("batch").replace("-", "_"),
        endpoint=body.endpoint,
        input_file_id=file.id,
        created_at=now,
        expires_at=now + WINDOW_S,
        metadata=body.metadata,
        output_stay_s=output_stay_s,
        owner=caller.id,
    )
    await batches.create(batch)
    return batch_object(batch)


@route("GET", "/v1/batches", scope="inference")
async def list_batches(http: HttpRequest) -> BatchList:
    """List the batches, newest first; limit and after select a page."""
    query = query_params(http.scope["query_string"])
    page = PageQuery(page_limit(query, _USUAL_PAGE, MAX_PAGE), after=query.get("after"))
    journal = _batches(http).journal
    found, more = await asyncio.to_thread(journal.page, page, current_caller().sees)
    data = [batch_object(batch) for batch in found]
    return {**list_page(data, more), "data": data}


@route("GET", "/v1/batches/{id}", scope="inference")
async def show_batch(http: HttpRequest) -> BatchObject:
    """Get a batch."""
    return batch_object(await _find(http))


@route("POST", "/v1/batches/{id}/cancel", scope="inference")
async def cancel_batch(http: HttpRequest) -> BatchObject:
    """Cancel a batch. Lines that are already answered are kept and appear in its files."""
    batch = await _find(http)
    if not await _batches(http).cancel(batch.id):
        batch = await _find(http)
        if batch.status not in ("cancelling", "cancelled"):
            raise Conflict(
                f"batch {batch.id} is {batch.status} and can no longer be cancelled", param="id"
            )
    return batch_object(await _find(http))


def _batches(http: HttpRequest) -> BatchExecutor:
    return http.services.batches


async def _find(http: HttpRequest) -> Batch:
    ident = http.parameter("id")
    journal = _batches(http).journal
    batch = await asyncio.to_thread(journal.find, ident, current_caller().sees)
    if batch is None:
        raise HttpError(404, "batch_not_found", f"no such batch: {ident[:80]!r}")
    return batch
