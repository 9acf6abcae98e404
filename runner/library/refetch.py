"""Fetches a blob again from where it was pulled. Imported with the first use, for it brings the
HTTP client with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from registry.digest import Digest
from registry.errors import DigestMismatch, InvalidManifest, RemoteError, RemoteMissing
from registry.hosts.host import HostAccess, RemoteFile
from registry.hosts.oci_registry import OciHost
from registry.manifest import MODEL_TYPE, Descriptor
from registry.pull import PullState
from registry.records import Records
from registry.transfer.download import BlobProgress
from registry.transfer.fetcher import Fetcher
from runner.library.blob_sources import BlobSource, LostBlob
from runner.library.hosts import HttpClient


@dataclass(frozen=True, slots=True)
class RefetchContext:
    """How sources are asked. open_client: with insecure or not, still to be entered. paths: also
    files of this machine."""

    open_client: Callable[[bool], Awaitable[HttpClient]]
    paths: bool
    access: HostAccess
    fetcher: Fetcher
    state: PullState


async def refetch(context: RefetchContext, lost: LostBlob) -> str:
    """Bring the blob from the first source that has it; gives that source in words.

    Raises RemoteMissing with what each source said, StoreFull, StoreFault.
    """
    _refuse_made(context.fetcher.store.records, lost)
    reasons = []
    for source in lost.sources:
        try:
            await _from_source(context, lost, source)
        except (RemoteError, DigestMismatch, InvalidManifest) as error:
            reasons.append(error.message)
        else:
            return source.reference.text or source.reference.name.short
    message = "; ".join(dict.fromkeys(reasons)) or "no source is known for it"
    raise RemoteMissing(f"blob {lost.digest.short} cannot be downloaded again: {message}")


async def _from_source(context: RefetchContext, lost: LostBlob, source: BlobSource) -> None:
    if source.reference.kind.is_local and not context.paths:
        raise RemoteMissing("files of this machine are read for the daemon's own user only")
    async with await context.open_client(source.insecure) as client:
        file = await _file(client, context.access, lost, source)
        progress = BlobProgress(lost.digest.short, lost.digest, lost.size_bytes)
        context.state.steps.append(progress)
        await context.fetcher.refetch(file, lost.digest, progress)


async def _file(
    client: HttpClient, access: HostAccess, lost: LostBlob, source: BlobSource
) -> RemoteFile:
    """The blob as the source has it. Raises RemoteError."""
    reference = source.reference
    host = await asyncio.to_thread(reference.kind.open, reference, client, access)
    if isinstance(host, OciHost):
        return host.repository.blob(Descriptor(MODEL_TYPE, lost.digest, lost.size_bytes))
    for file in (await host.resolve()).files:
        if _is_wanted(file.digest, file.size_bytes, lost):
            return file
    raise RemoteMissing(f"{reference.name.short} has different content now")


def _refuse_made(records: Records, lost: LostBlob) -> None:
    """Raises RemoteMissing for a blob that was made here of several files, which are not kept;
    the next pull makes it again."""
    origin = records.origin(lost.digest)
    if origin is None or origin.recipe is None:
        return
    records.keep_origin(lost.digest, lost.size_bytes, replace(origin, recipe=None))
    raise RemoteMissing(
        f"it was made here of files that were not kept; get the model of {origin.reference} again: "
        "hearth pull, or hearth import"
    )


def _is_wanted(digest: Digest | None, size_bytes: int, lost: LostBlob) -> bool:
    return size_bytes == lost.size_bytes and digest in (None, lost.digest)
