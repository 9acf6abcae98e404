"""The pull of one model: manifest, files, verification, the manifest into the store last.

Owns the order and what can be seen of it. Knows neither where the model comes from, nor how one
is made of files, nor HTTP clients that watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from registry.digest import Digest
from registry.errors import RegistryError
from registry.hosts.host import Host, RemoteFile, RemoteModel
from registry.names import Name
from registry.progress import Progress
from registry.store import Store
from registry.transfer.download import BlobProgress
from registry.transfer.fetcher import Fetcher


@dataclass(slots=True)
class BuildProgress:
    """A step of the building of a model, which grows until it is done."""

    progress: Progress
    done: bool = False


@dataclass(slots=True)
class PullState:
    """What a pull has done and is doing: lines of text, files on their way, work. name: what the
    model is called in the store, once that is known. recipe: see RemoteModel. made_type: of the
    layer that was built here, or came as the only one. file: the one file of the weights."""

    steps: list[str | BlobProgress | BuildProgress] = field(default_factory=list)
    name: Name | None = None
    recipe: str | None = None
    made_type: str | None = None
    file: str | None = None

    def report(self, progress: Progress) -> None:
        """Show work: another status is the next step."""
        last = self.steps[-1] if self.steps else None
        if isinstance(last, BuildProgress) and last.progress.status == progress.status:
            last.progress = progress
            return
        if isinstance(last, BuildProgress):
            last.done = True
        self.steps.append(BuildProgress(progress))


Build = Callable[[RemoteModel, dict[str, Digest], PullState], Awaitable[None]]
Check = Callable[[RemoteFile, Digest], Awaitable[None]]


async def _no_check(file: RemoteFile, digest: Digest) -> None:
    """Take every file."""


@dataclass(frozen=True, slots=True)
class ModelBuilder:
    """How a model is made of files that came without a manifest. check: raises when a file that
    has arrived shows that none can be made, which spares the rest of the transfer. unbuildable: the
    errors that say so; after others the files are kept for the next try."""

    build: Build
    check: Check = _no_check
    unbuildable: tuple[type[Exception], ...] = ()


async def pull(
    host: Host,
    fetcher: Fetcher,
    state: PullState,
    builder: ModelBuilder,
    name: Name | None = None,
) -> None:
    """Bring a model into the store. name: what it is called there, None: as the host calls it.

    Raises RemoteError, InvalidManifest, StoreFull, StoreFault, StoreReadOnly, and what building
    raises; then the store is unchanged, except for partial transfers that the next pull continues.
    """
    state.steps.append("pulling manifest")
    remote = await host.resolve()
    remote = remote if name is None else replace(remote, name=name)
    state.steps.extend(remote.notes)
    state.made_type = remote.made_type if remote.recipe is not None else None
    if not await asyncio.to_thread(_is_made, fetcher.store, remote):
        await fetcher.require_space(remote.files, remote.made_bytes)
        digests: dict[str, Digest] = {}
        try:
            with ExitStack() as held:
                await _fetch(remote, fetcher, state, builder, digests, held)
                state.steps.append("verifying sha256 digest")
                await _install(remote, fetcher, state, digests, builder)
        except builder.unbuildable:
            await asyncio.to_thread(fetcher.store.discard, digests.values())
            raise
        if remote.manifest is None:
            await asyncio.to_thread(fetcher.store.discard, digests.values())
    state.name, state.recipe = remote.name, remote.recipe
    weights = [file.title for file in remote.files if file.role == "weights"]
    state.file = weights[0] if len(weights) == 1 else None
    state.steps.append("success")


async def _fetch(
    remote: RemoteModel,
    fetcher: Fetcher,
    state: PullState,
    builder: ModelBuilder,
    digests: dict[str, Digest],
    held: ExitStack,
) -> None:
    """Bring all files, each noted in digests and held against removal."""
    known = [file.digest for file in remote.files if file.digest is not None]
    held.enter_context(fetcher.store.holding(known))
    for file in remote.files:
        progress = BlobProgress(file.title, file.digest, file.size_bytes, key=file.key)
        state.steps.append(progress)
        digest = await fetcher.fetch(file, progress)
        held.enter_context(fetcher.store.holding([digest]))
        digests[file.title] = digest
        if remote.manifest is None:
            await builder.check(file, digest)


async def _install(
    remote: RemoteModel,
    fetcher: Fetcher,
    state: PullState,
    digests: dict[str, Digest],
    builder: ModelBuilder,
) -> None:
    if remote.manifest is None:
        await builder.build(remote, digests, state)
        return
    state.steps.append("writing manifest")
    store = fetcher.store
    await asyncio.to_thread(store.put_manifest, remote.name, remote.manifest, remote.content)


def _is_made(store: Store, remote: RemoteModel) -> bool:
    """Whether the store has the model as it would be made of these files, which are not kept.
    Blocks on the disk."""
    if remote.recipe is None:
        return False
    try:
        stored = store.get(remote.name)
        made = stored.manifest.of_type(remote.made_type)
        origin = store.records.origin(made[0].digest) if made else None
    except RegistryError:
        return False
    return stored.fault is None and origin is not None and origin.recipe == remote.recipe
