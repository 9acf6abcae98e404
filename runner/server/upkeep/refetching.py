"""Fetches a blob again from where it was pulled. Imported with the first use, for it brings the
HTTP client with it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from registry.digest import Digest
from registry.errors import DigestMismatch, InvalidManifest, RemoteError, RemoteMissing
from registry.hosts.host import RemoteFile
from registry.hosts.oci import OciHost
from registry.hosts.web import Web
from registry.manifest import MODEL_TYPE, Layer
from registry.pull import PullState
from registry.records import Records
from registry.transfer.download import BlobProgress
from registry.transfer.fetching import Fetcher
from runner.server.hosts import host_for
from runner.server.transfers import Access, Place, Wanted


@dataclass(frozen=True, slots=True)
class Asking:
    """How places are asked."""

    agent: str
    access: Access
    fetcher: Fetcher
    state: PullState


async def refetch(asking: Asking, wanted: Wanted) -> str:
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


async def _from_place(asking: Asking, wanted: Wanted, place: Place) -> None:
    async with Web(asking.agent, place.insecure) as web:
        file = await _file(web, asking.access, wanted, place)
        progress = BlobProgress(wanted.digest.short, wanted.digest, wanted.size_bytes)
        asking.state.steps.append(progress)
        await asking.fetcher.refetch(file, wanted.digest, progress)


async def _file(web: Web, access: Access, wanted: Wanted, place: Place) -> RemoteFile:
    """The blob as the place has it. Raises RemoteError."""
    host = host_for(web, place.reference, access)
    if isinstance(host, OciHost):
        return host.repository.blob(Layer(MODEL_TYPE, wanted.digest, wanted.size_bytes))
    for file in (await host.resolve()).files:
        if _is_wanted(file.digest, file.size_bytes, wanted):
            return file
    raise RemoteMissing(f"{place.reference.name.short} has other content by now")


def _refuse_made(records: Records, wanted: Wanted) -> None:
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


def _is_wanted(digest: Digest | None, size_bytes: int, wanted: Wanted) -> bool:
    return size_bytes == wanted.size_bytes and digest in (None, wanted.digest)
