"""HEAD and POST /api/blobs/{digest}: files for /api/create, straight to the store's disk."""

from __future__ import annotations

import asyncio

from registry.blobs import BlobWriter
from registry.digest import Digest
from runner.server.errors import HttpError
from runner.server.exchange import Exchange

_WRITE_BYTES = 1 << 20  # one switch to a thread for so much, not for each network packet


async def has_blob(exchange: Exchange) -> None:
    """200 when the store has the blob."""
    digest = _digest(exchange)
    if not exchange.daemon.shelf.has_blob(digest):
        raise HttpError(404, "blob_missing", f"blob {digest} is not in the store")
    await exchange.reply_bytes(b"", "application/json")


async def put_blob(exchange: Exchange) -> None:
    """Store the body, which must have this digest. A connection that breaks leaves nothing."""
    digest = _digest(exchange)
    store = exchange.daemon.shelf
    if store.has_blob(digest):
        async for _ in exchange.chunks():
            pass
        await exchange.reply_bytes(b"", "application/json")
        return
    with store.blob_writer(digest, exchange.body_size_bytes) as writer:
        await _receive(exchange, writer)
        await asyncio.to_thread(writer.commit)
    await exchange.reply_bytes(b"", "application/json", 201)


def _digest(exchange: Exchange) -> Digest:
    return Digest.parse(exchange.parameter("digest").replace("sha256-", "sha256:", 1).lower())


async def _receive(exchange: Exchange, writer: BlobWriter) -> None:
    held = bytearray()
    async for chunk in exchange.chunks():
        held += chunk
        if len(held) >= _WRITE_BYTES:
            await asyncio.to_thread(writer.write, bytes(held))
            held.clear()
    if held:
        await asyncio.to_thread(writer.write, bytes(held))
