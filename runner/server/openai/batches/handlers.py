"""/v1/batches: create, list, show and cancel batches."""

from __future__ import annotations

import asyncio
import time

from runner.errors import Conflict, InvalidRequest
from runner.server.errors import HttpError
from runner.server.exchange import Exchange
from runner.server.identity import new_id
from runner.server.openai.batches.journal import Batch
from runner.server.openai.batches.running import Batches
from runner.server.openai.batches.wire import WINDOW_S, BatchRequest, described
from runner.server.openai.files.handlers import (
    limit_of,
    page_of,
    query_of,
    stay_s,
    unknown_file,
)

MAX_PAGE = 100
_USUAL_PAGE = 20


async def create_batch(exchange: Exchange) -> None:
    """Answer the requests in a file, beside live ones and after them. The file was uploaded with
    purpose=batch; each line holds custom_id, method, url and body."""
    asked = await exchange.read(BatchRequest)
    asked.check_metadata()
    stay = asked.output_expires_after
    output_stay_s = None if stay is None else stay_s(stay.seconds)
    batches = _batches(exchange)
    file = await asyncio.to_thread(batches.shelf.find, asked.input_file_id)
    if file is None:
        raise unknown_file(asked.input_file_id)
    if file.purpose != "batch":
        raise InvalidRequest(
            f"the file has purpose={file.purpose!r}; upload it with purpose='batch'",
            param="input_file_id",
        )
    now = int(time.time())
    batch = Batch(
        id=new_id("batch").replace("-", "_"),
        endpoint=asked.endpoint,
        input_file_id=file.id,
        created_at=now,
        expires_at=now + WINDOW_S,
        metadata=asked.metadata,
        output_stay_s=output_stay_s,
    )
    await batches.create(batch)
    await exchange.reply(described(batch))


async def list_batches(exchange: Exchange) -> None:
    """The batches, the newest first; limit and after choose."""
    query = query_of(exchange)
    limit = limit_of(query, _USUAL_PAGE, MAX_PAGE)
    journal = _batches(exchange).journal
    found, more = await asyncio.to_thread(journal.page, query.get("after"), limit)
    await exchange.reply(page_of([described(batch) for batch in found], more))


async def show_batch(exchange: Exchange) -> None:
    """A batch as it stands."""
    await exchange.reply(described(await _find(exchange)))


async def cancel_batch(exchange: Exchange) -> None:
    """Stop a batch. The lines that are answered stay and come into its files."""
    batch = await _find(exchange)
    if not await _batches(exchange).cancel(batch.id):
        batch = await _find(exchange)
        if batch.status not in ("cancelling", "cancelled"):
            raise Conflict(f"batch {batch.id} is {batch.status}: too late to cancel", param="id")
    await exchange.reply(described(await _find(exchange)))


def _batches(exchange: Exchange) -> Batches:
    return exchange.daemon.batches


async def _find(exchange: Exchange) -> Batch:
    ident = exchange.parameter("id")
    batch = await asyncio.to_thread(_batches(exchange).journal.find, ident)
    if batch is None:
        raise HttpError(404, "batch_not_found", f"there is no batch {ident[:80]!r}")
    return batch
