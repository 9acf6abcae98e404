"""Where a blob can be had again: what comes with hearth, and where it was pulled from.

Owns the order of the attempts. Speaks no HTTP itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from importlib.resources import files
from pathlib import Path

from registry.digest import Digest
from registry.errors import InvalidDigest, InvalidName, RemoteMissing
from registry.fsck.findings import Finding
from registry.fsck.repair import repair_bits, restore_from_files
from registry.hosts.references import parse
from registry.store import Store
from registry.transfer.download import BlobProgress
from runner.library.library import Library
from runner.library.transfers import BlobSource, LostBlob

_TICK_S = 0.1


async def repair_blob(
    library: Library, finding: Finding
) -> AsyncGenerator[BlobProgress | str, None]:
    """Bring a blob back: how far it is, and last where it came from.

    Raises RemoteError when nobody has it, Offline, StoreFull, StoreFault.
    """
    store, digest = library.store, finding.digest
    assert digest is not None
    wanted = await asyncio.to_thread(lost_blob, store, digest)
    own = _of_package(wanted.size_bytes)
    if await asyncio.to_thread(restore_from_files, store, digest, own) is not None:
        yield "from what comes with hearth"
        return
    if finding.kind == "content" and await asyncio.to_thread(repair_bits, store, digest):
        yield "by its checksums"
        return
    job = library.transfers.mend(wanted)
    try:
        while not job.task.done():
            await asyncio.wait({job.task}, timeout=_TICK_S)
            for step in job.state.steps[-1:]:
                if isinstance(step, BlobProgress):
                    yield step
        yield f"from {job.task.result()}"
    finally:
        await library.transfers.leave(job)


def lost_blob(store: Store, digest: Digest) -> LostBlob:
    """What is known of a blob: its size, where it was pulled from, and the names of the models
    that need it. Blocks on the disk. Raises RemoteMissing for one that no model needs."""
    sizes: list[int] = []
    places: list[BlobSource] = []
    for model in store.models():
        for layer in () if model.parsed is None else model.parsed.blobs:
            if layer.digest == digest:
                sizes.append(layer.size_bytes)
                places += _places(str(model.name))
    if not sizes:
        raise RemoteMissing("no model needs it; `hearth gc` removes it")
    record = store.records.blob(digest)
    if record is not None and record.origin is not None:
        places = [*_places(record.origin.reference, record.origin.insecure), *places]
    return LostBlob(digest, sizes[0], tuple(places))


def _places(text: str, insecure: bool = False) -> Iterator[BlobSource]:
    with contextlib.suppress(InvalidName, InvalidDigest):
        yield BlobSource(parse(text), insecure)


def _of_package(size_bytes: int) -> list[Path]:
    """The model files that come with hearth and have this size."""
    folder = Path(str(files("registry"))) / "builtin"
    return [path for path in folder.glob("*/*.gguf") if path.stat().st_size == size_bytes]
