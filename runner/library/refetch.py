"""Fetches a blob again from where it was pulled. Imported with the first use, for it brings the
HTTP client with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from registry.digest import Digest
from registry.errors import DigestMismatch, InvalidManifest, RemoteError, RemoteMissing
from registry.hosts.host import RemoteFile
from registry.hosts.http.client import HttpClient
from registry.hosts.kinds.oci import OciHost
from registry.manifest import MODEL_TYPE, Descriptor
from registry.pull import PullState
from registry.records import Records
from registry.transfer.download import BlobProgress
from registry.transfer.fetcher import Fetcher
from runner.library.hosts import host_for
from runner.library.transfers import BlobSource, HostAccess, LostBlob


@dataclass(frozen=True, slots=True)
class RefetchContext:
    """How places are asked."""

    agent: str
    access: HostAccess
    fetcher: Fetcher
    state: PullState


async def refetch(asking: RefetchContext, wanted: LostBlob) -> str:
    """Bring the blob from the first place that has it; gives that place in words.

    Raises RemoteMissing with what each place said, StoreFull, StoreFault.
    """
    _refuse_made(asking.fetcher.store.records, wanted)
    reasons = []
    for place in wanted.places:
        try:
            await _from_place(asking, wanted, place)
        except (RemoteError, DigestMismatch, InvalidManifest) as error:
            reasons.append(error.message)
        else:
            return place.reference.text or place.reference.name.short
    told = "; ".join(dict.fromkeys(reasons)) or "nobody is known who has it"
    raise RemoteMissing(f"blob {wanted.digest.short} cannot be fetched again: {told}")


async def _from_place(asking: RefetchContext, wanted: LostBlob, place: BlobSource) -> None:
    async with HttpClient(asking.agent, place.insecure) as web:
        file = await _file(web, asking.access, wanted, place)
        progress = BlobProgress(wanted.digest.short, wanted.digest, wanted.size_bytes)
        asking.state.steps.append(progress)
        await asking.fetcher.refetch(file, wanted.digest, progress)


async def _file(
    web: HttpClient, access: HostAccess, wanted: LostBlob, place: BlobSource
) -> RemoteFile:
    """The blob as the place has it. Raises RemoteError."""
    host = host_for(web, place.reference, access)
    if isinstance(host, OciHost):
        return host.repository.blob(Descriptor(MODEL_TYPE, wanted.digest, wanted.size_bytes))
    for file in (await host.resolve()).files:
        if _is_wanted(file.digest, file.size_bytes, wanted):
            return file
    raise RemoteMissing(f"{place.reference.name.short} has other content by now")


def _refuse_made(records: Records, wanted: LostBlob) -> None:
    """Raises RemoteMissing for a blob that was made here of several files, which are not kept;
    the next pull makes it again."""
    record = records.blob(wanted.digest)
    origin = None if record is None else record.origin
    if origin is None or origin.recipe is None:
        return
    records.keep_origin(wanted.digest, wanted.size_bytes, replace(origin, recipe=None))
    raise RemoteMissing(
        f"it was made here of several files; make it again: hearth pull {origin.reference}"
    )


def _is_wanted(digest: Digest | None, size_bytes: int, wanted: LostBlob) -> bool:
    return size_bytes == wanted.size_bytes and digest in (None, wanted.digest)
