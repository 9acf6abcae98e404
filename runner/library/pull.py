"""Pulls and pushes of whole models, from the name that a client wrote to the name in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from registry.errors import InvalidName, ModelMissing, Offline, RemoteMissing, RemoteUnreachable
from registry.hosts.references import Reference, parse
from registry.names import Name
from registry.progress import Progress
from registry.pull import PullState
from registry.store import Store
from registry.transfer.download import BlobProgress
from runner.errors import InvalidRequest, ModelNotFound
from runner.library.library import Library
from runner.library.lookup import parse_name
from runner.library.progress import ReportProgress
from runner.library.transfer_progress import follow
from runner.library.transfers import Reach, Transfer


@dataclass(frozen=True, slots=True)
class PulledModel:
    """A model in the store, under this name. unchecked: why it is as it was before the pull."""

    name: Name
    unchecked: str | None = None


@dataclass(frozen=True, slots=True)
class PullOptions:
    """insecure: plain HTTP beyond this machine too. destination: what the model is called here.
    began gets what the transfer does, as soon as it has begun and while it goes on."""

    insecure: bool = False
    destination: str | None = None
    began: Callable[[PullState], None] = lambda _: None


async def pull_model(
    library: Library,
    text: str,
    report: ReportProgress,
    *,
    reach: Reach,
    options: PullOptions = PullOptions(),
) -> PulledModel:
    """Bring the model that text names into the store. One that is there stays, and is all there is,
    when nobody can be asked whether it has changed. A caller that is cancelled ends the pull unless
    another one waits for it.

    Raises InvalidRequest, Offline, RemoteError, StoreError, ShuttingDown, and what building
    raises.
    """
    place = await asyncio.to_thread(library.short_names.expand, text)
    reference = reference_of(place, options.insecure, reach.paths)
    wanted = options.destination
    name = None if wanted is None else parse_name(wanted, "destination")
    transfer: Transfer | None = None
    try:
        transfer = library.transfers.pull(reference, reach, options.insecure, name)
        options.began(transfer.state)
        if place != text:
            await report(Progress(f"{text} is {place}"))
        name = await follow(transfer, "pulling", report)
    except (Offline, RemoteUnreachable) as error:
        kept = await asyncio.to_thread(_installed, library.store, name or reference.name)
        if kept is None or (transfer is not None and _has_begun(transfer)):
            raise
        unchecked = f"{kept.short} stays as it is and could not be checked: {error.message}"
        await report(Progress(unchecked))
        return PulledModel(kept, unchecked)
    finally:
        if transfer is not None:
            await library.transfers.leave(transfer)
    await library.on_change(name.short)
    return PulledModel(name)


def _installed(store: Store, name: Name) -> Name | None:
    try:
        stored = store.get(name)
    except ModelMissing:
        return None
    return stored.name if stored.fault is None else None


def _has_begun(transfer: Transfer) -> bool:
    """Whether files were on their way, so that the model has changed where it comes from."""
    return any(isinstance(step, BlobProgress) for step in transfer.state.steps)


async def push_model(
    library: Library, text: str, report: ReportProgress, *, reach: Reach, insecure: bool = False
) -> Name:
    """Send a model of the store to its registry. Raises InvalidRequest, ModelMissing, Offline,
    RemoteError, ShuttingDown."""
    transfer = library.transfers.push(reference_of(text, insecure), reach, insecure)
    try:
        return await follow(transfer, "pushing", report)
    finally:
        await library.transfers.leave(transfer)


async def find_or_pull(
    library: Library, text: str, report: ReportProgress, reach: Reach, param: str = "from"
) -> Name:
    """The name in the store of the model that text names. One that is not there is pulled. param:
    the field of the request that names it.

    Raises InvalidRequest, ModelNotFound with near names when the network may not be used or has
    no such model, RemoteError, StoreError.
    """
    try:
        return library.store.get(Name.parse(text)).name
    except InvalidName as error:
        if "://" not in text and "@" not in text:
            raise InvalidRequest(error.message, param=param) from None
        missing = ModelNotFound(f"model {text[:80]!r} is not installed", model=text)
    except ModelMissing as error:
        near = list(error.suggestions)
        missing = ModelNotFound(error.message, model=text, suggestions=near)
    if library.settings.offline:
        raise missing
    try:
        return (await pull_model(library, text, report, reach=reach)).name
    except RemoteMissing as error:
        near = missing.details.get("suggestions") or []
        hint = f". Did you mean {' or '.join(near)}?" if near else ""
        raise ModelNotFound(f"{error.message}{hint}", **missing.details) from None


def reference_of(text: str, insecure: bool, allow_paths: bool = False) -> Reference:
    """Where text says that a model comes from. allow_paths: it may be a path of this machine.
    Raises InvalidName, and InvalidRequest for plain http beyond this machine unless insecure."""
    reference = parse(text)
    if reference.kind.is_local and not allow_paths:
        raise InvalidRequest(
            f"{text[:200]} is a path; a path can only be pulled, on the daemon's machine, by its "
            "own user or with an admin key",
            param="model",
        )
    if reference.plain and not insecure and not _on_loopback(reference):
        raise InvalidRequest(
            f"{text[:200]} uses plain HTTP; allow it with --insecure", param="model"
        )
    return reference


def _on_loopback(reference: Reference) -> bool:
    return reference.name.host.partition(":")[0] in ("127.0.0.1", "localhost")
