"""The check of the whole store, and the repair of what it finds.

Owns the order: manifests first, for one that is back says which blobs are needed; then the check;
then each finding by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field

from registry.errors import RegistryError, StoreReadOnly
from registry.fsck.check import check
from registry.fsck.findings import CheckTotals, Finding
from registry.fsck.manifest_files import Survey, check_manifests
from registry.fsck.repair import repair_locally, restore_from_files
from registry.progress import Progress
from registry.transfer.download import BlobProgress
from runner.errors import HearthError
from runner.library.batches import batches
from runner.library.blob_sources import bundled_files, lost_blob
from runner.library.library import Library
from runner.library.saved_prefixes import SavedPrefixes
from runner.library.transfers import Reach

__all__ = ["Finding", "FsckEvent", "FsckOutcome", "FsckTotals", "check_store"]

_TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class FsckOutcome:
    """What became of a finding. source: from where it was repaired, in words; None: it was not,
    for reason."""

    finding: Finding
    source: str | None = None
    reason: str = ""


@dataclass(slots=True)
class FsckTotals:
    """What was found in all, and what of it was repaired."""

    findings: list[Finding] = field(default_factory=list)
    repaired: list[Finding] = field(default_factory=list)
    seen: CheckTotals = field(default_factory=lambda: CheckTotals(0, 0, 0))

    @property
    def damage(self) -> list[Finding]:
        """The findings that mean lost content."""
        return [finding for finding in self.findings if finding.is_damage]

    @property
    def left(self) -> list[Finding]:
        """The damage that was not repaired."""
        return [finding for finding in self.damage if finding not in self.repaired]


FsckEvent = Finding | Progress | FsckOutcome | FsckTotals


async def check_store(
    library: Library, quick: bool, repair: Reach | None, prefixes: SavedPrefixes | None = None
) -> AsyncGenerator[FsckEvent]:
    """Check the store: its findings, how far it is, with repair what became of each finding, and
    last the totals. quick: sizes only. prefixes: what of these cannot be used goes. repair: what it
    may be repaired from; None: it is not. Closing it ends it; what was repaired stays repaired.

    Raises StoreReadOnly.
    """
    if repair is not None and library.read_only:
        raise StoreReadOnly("repair the store")
    totals = FsckTotals()
    steps = [_check(library, quick, totals)]
    if prefixes is not None:
        steps.append(_check_prefixes(prefixes, quick, totals))
    if repair is not None:
        steps = [_repair_manifests(library, totals), *steps, _repair_all(library, repair, totals)]
    for step in steps:
        async with aclosing(step) as events:
            async for event in events:
                yield event
    yield totals


async def _check(library: Library, quick: bool, totals: FsckTotals) -> AsyncGenerator[FsckEvent]:
    async with aclosing(batches(check(library.store, quick))) as found:
        async for batch in found:
            reading = [event for event in batch if isinstance(event, Progress)]
            for event in batch:
                if isinstance(event, Finding):
                    totals.findings.append(event)
                    yield event
                elif isinstance(event, CheckTotals):
                    totals.seen = event
            if reading:
                yield reading[-1]


async def _check_prefixes(
    prefixes: SavedPrefixes, quick: bool, totals: FsckTotals
) -> AsyncGenerator[FsckEvent]:
    for path, reason in await asyncio.to_thread(list, prefixes.check(quick)):
        text = f"the saved prefix {path} {reason}; it was removed"
        finding = Finding("stray", path, text)
        totals.findings.append(finding)
        yield finding


async def _repair_manifests(library: Library, totals: FsckTotals) -> AsyncGenerator[FsckEvent]:
    store = library.store
    found = await asyncio.to_thread(lambda: list(check_manifests(store, Survey())))
    for finding in found:
        if finding.kind == "manifest" and await asyncio.to_thread(repair_locally, store, finding):
            totals.findings.append(finding)
            totals.repaired.append(finding)
            yield finding
            yield FsckOutcome(finding, "from a copy")


async def _repair_all(
    library: Library, reach: Reach, totals: FsckTotals
) -> AsyncGenerator[FsckEvent]:
    for finding in totals.findings:
        if finding in totals.repaired or finding.kind == "stray":
            continue
        outcome = FsckOutcome(finding, reason=_advice(finding))
        try:
            async for step in _repair(library, reach, finding):
                if isinstance(step, str):
                    outcome = FsckOutcome(finding, step)
                    totals.repaired.append(finding)
                else:
                    yield step
        except (RegistryError, HearthError) as error:
            outcome = FsckOutcome(finding, reason=error.message)
        yield outcome


async def _repair(
    library: Library, reach: Reach, finding: Finding
) -> AsyncIterator[Progress | str]:
    """Repair one finding: how far it is, and at last in words from what it was repaired."""
    if finding.is_damage and finding.kind != "manifest":
        async for step in _repair_blob(library, reach, finding):
            yield step
    elif await asyncio.to_thread(repair_locally, library.store, finding):
        yield "here"


async def _repair_blob(
    library: Library, reach: Reach, finding: Finding
) -> AsyncIterator[Progress | str]:
    """Raises RemoteError when nobody has the blob, Offline, StoreFull, StoreFault."""
    store, digest = library.store, finding.digest
    assert digest is not None
    lost = await asyncio.to_thread(lost_blob, store, digest)
    bundled = bundled_files(lost.size_bytes)
    if await asyncio.to_thread(restore_from_files, store, digest, bundled) is not None:
        yield "from the built-in model"
        return
    transfer = library.transfers.refetch(lost, reach)
    try:
        while not transfer.task.done():
            await asyncio.wait({transfer.task}, timeout=_TICK_S)
            for step in transfer.state.steps[-1:]:
                if isinstance(step, BlobProgress):
                    yield _progress(step)
        yield f"from {transfer.task.result()}"
    finally:
        await library.transfers.leave(transfer)


def _progress(step: BlobProgress) -> Progress:
    return Progress(
        f"repairing {step.title}",
        step.completed_bytes,
        step.total_bytes,
        digest=str(step.digest),
        resumed=step.resumed_bytes,
    )


def _advice(finding: Finding) -> str:
    if finding.kind == "manifest":
        name = finding.models[0]
        return f"there is no copy of it; `hearth pull {name}` or `hearth create {name}` makes it"
    if finding.kind == "mode":
        return "the file is also linked elsewhere and was left unchanged"
    return "it is in use"
