"""Files that a model is to be made of: uploads, and files that the store's own user brings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from registry.digest import Digest
from runner.library.library import Library
from runner.library.progress import ReportProgress, run_with_progress

_WRITE_BYTES = 1 << 20  # one switch to a thread for so much, not for each network packet


def has_blob(library: Library, digest: str) -> bool:
    """Whether the store has the blob. Raises InvalidDigest."""
    return library.store.has_blob(_parsed(digest))


async def receive_blob(
    library: Library, digest: str, size_bytes: int | None, chunks: AsyncIterator[bytes]
) -> bool:
    """Store content that must have this digest; False when it is there already, and the content is
    read to no end. A failure leaves nothing.

    Raises InvalidDigest, DigestMismatch, StoreReadOnly, StoreFull, StoreFault, and what chunks
    raises.
    """
    wanted = _parsed(digest)
    if library.store.has_blob(wanted):
        async for _ in chunks:
            pass
        return False
    await _write(library, wanted, size_bytes, chunks)
    return True


async def receive_upload(
    library: Library, size_bytes: int | None, chunks: AsyncIterator[bytes]
) -> tuple[str, int]:
    """Store content; gives its digest and its size in bytes. Raises as receive_blob."""
    digest, stored_bytes = await _write(library, None, size_bytes, chunks)
    return str(digest), stored_bytes


async def _write(
    library: Library,
    wanted: Digest | None,
    size_bytes: int | None,
    chunks: AsyncIterator[bytes],
) -> tuple[Digest, int]:
    buffer = bytearray()
    with library.store.blob_writer(wanted, size_bytes) as writer:
        async for chunk in chunks:
            buffer += chunk
            if len(buffer) >= _WRITE_BYTES:
                await asyncio.to_thread(writer.write, bytes(buffer))
                buffer.clear()
        if buffer:
            await asyncio.to_thread(writer.write, bytes(buffer))
        return await asyncio.to_thread(writer.commit)


async def take_file(library: Library, name: str, report: ReportProgress) -> tuple[str, int]:
    """Make a file of the store's folder for incoming files a blob; its digest and size in bytes.
    The file is gone afterwards, also when the caller is cancelled. See registry.incoming_files.

    Raises BlobMissing when it is not there: the client means another store.
    """
    store = library.store
    size_bytes = await asyncio.to_thread(store.incoming_size, name)
    digest, _ = await run_with_progress(
        lambda advance: store.take_incoming(name, advance), "verifying", size_bytes, report
    )
    return str(digest), size_bytes


def _parsed(digest: str) -> Digest:
    return Digest.parse(digest.replace("sha256-", "sha256:", 1).lower())
