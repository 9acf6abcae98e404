"""The pull of one model: manifest, files, verification, the manifest into the store last.

Owns the order and what can be seen of it. Knows neither where the model comes from nor HTTP
clients that watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from registry.digest import Digest
from registry.hosts.host import Host, RemoteModel
from registry.names import Name
from registry.transfer.download import BlobProgress
from registry.transfer.fetching import Fetcher

Build = Callable[[Name, dict[str, Digest]], Awaitable[None]]


@dataclass(slots=True)
class PullState:
    """What a pull has done and is doing: lines of text, and files on their way. name: what the
    model is called in the store, once that is known."""

    steps: list[str | BlobProgress] = field(default_factory=list)
    name: Name | None = None


async def pull(host: Host, fetcher: Fetcher, state: PullState, build: Build) -> None:
    """Bring a model into the store. build makes one of files that came without a manifest.

    Raises RemoteError, InvalidManifest, StoreFull, StoreFault, StoreReadOnly, and what build
    raises; then the store is as it was, but for the parts that the next pull goes on from.
    """
    state.steps.append("pulling manifest")
    remote = await host.resolve()
    if remote.note is not None:
        state.steps.append(remote.note)
    await fetcher.require_space(remote.files)
    known = [file.digest for file in remote.files if file.digest is not None]
    with fetcher.store.holding(known):
        digests = await _fetch(remote, fetcher, state)
        state.steps.append("verifying sha256 digest")
        state.steps.append("writing manifest")
        await _install(remote, fetcher, digests, build)
    state.name = remote.name
    state.steps.append("success")


async def _fetch(remote: RemoteModel, fetcher: Fetcher, state: PullState) -> dict[str, Digest]:
    digests = {}
    for file in remote.files:
        progress = BlobProgress(file.title, file.digest, file.size_bytes)
        state.steps.append(progress)
        digests[file.title] = await fetcher.fetch(file, progress)
    return digests


async def _install(
    remote: RemoteModel, fetcher: Fetcher, digests: dict[str, Digest], build: Build
) -> None:
    if remote.manifest is None:
        await build(remote.name, digests)
        return
    store = fetcher.store
    await asyncio.to_thread(store.put_manifest, remote.name, remote.manifest, remote.content)
