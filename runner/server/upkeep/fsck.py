"""POST /api/fsck: check the store, and mend it where that is asked for.

The answer is NDJSON: {"status", "total", "completed"} while blobs are read, a line with "finding"
for each thing that is not as it should be, with repair a line with "outcome" for each that was
mended or not, and at last {"status": "success"} with the sums. Owns these lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from registry.errors import RegistryError, StoreReadOnly
from registry.fsck.check import check
from registry.fsck.findings import CheckProgress, CheckTotals, Finding
from registry.fsck.manifest_files import Survey, check_manifests
from registry.fsck.repair import repair_locally
from registry.store import Store
from registry.transfer.download import BlobProgress
from runner.errors import HearthError
from runner.library.blob_repair import repair_blob
from runner.server.http_request import HttpRequest
from runner.server.services import Services
from runner.server.upkeep.ndjson import batches, write_line
from runner.server.upkeep.wire import FsckRequest

Line = dict[str, Any]


@dataclass(slots=True)
class _Tally:
    """What was found and what became of it."""

    findings: list[Finding] = field(default_factory=list)
    mended: list[Finding] = field(default_factory=list)
    seen: CheckTotals = field(default_factory=lambda: CheckTotals(0, 0, 0))


async def fsck(http: HttpRequest) -> None:
    """Check the store. A client that leaves ends it; what was mended stays mended."""
    asked = await http.read(FsckRequest)
    services, tally = http.services, _Tally()
    if asked.repair and services.library.store.read_only:
        raise StoreReadOnly("mend the store")
    async with http.cancelled_on_disconnect():
        if asked.repair:
            await _mend_manifests(http, tally)
        async with aclosing(_checked(services.library.store, asked.quick, tally)) as lines:
            async for line in lines:
                await write_line(http, line)
        if asked.repair:
            await _mend_all(http, tally)
        await write_line(http, _summary(tally))
        await http.finish()


async def _checked(store: Store, quick: bool, tally: _Tally) -> AsyncGenerator[Line, None]:
    async with aclosing(batches(check(store, quick))) as found:
        async for batch in found:
            reading = [event for event in batch if isinstance(event, CheckProgress)]
            for event in batch:
                if isinstance(event, Finding):
                    tally.findings.append(event)
                    yield {"finding": _finding(event)}
                elif isinstance(event, CheckTotals):
                    tally.seen = event
            if reading:
                at = reading[-1]
                yield {"status": "checking", "total": at.total_bytes, "completed": at.done_bytes}


async def _mend_manifests(http: HttpRequest, tally: _Tally) -> None:
    """Before all else: a manifest that is back says which blobs are wanted."""
    store = http.services.library.store
    found = await asyncio.to_thread(lambda: list(check_manifests(store, Survey())))
    for finding in found:
        if finding.kind == "manifest" and await asyncio.to_thread(repair_locally, store, finding):
            tally.findings.append(finding)
            tally.mended.append(finding)
            await write_line(http, {"finding": _finding(finding)})
            await write_line(http, _mended(finding, "from its copy"))


async def _mend_all(http: HttpRequest, tally: _Tally) -> None:
    for finding in tally.findings:
        if finding in tally.mended or finding.kind == "stray":
            continue
        try:
            how = None
            async for step in _mend(http.services, finding):
                if isinstance(step, str):
                    how = step
                else:
                    await write_line(http, step)
        except (RegistryError, HearthError) as error:
            await write_line(http, _unmended(finding, error.message))
            continue
        if how is None:
            await write_line(http, _unmended(finding, _advice(finding)))
        else:
            tally.mended.append(finding)
            await write_line(http, _mended(finding, how))


async def _mend(services: Services, finding: Finding) -> AsyncIterator[Line | str]:
    """Mend one finding: lines of progress, and at last in words from what it was mended."""
    if finding.is_damage and finding.kind != "manifest":
        async for step in repair_blob(services.library, finding):
            yield step if isinstance(step, str) else _progress(step)
    elif await asyncio.to_thread(repair_locally, services.library.store, finding):
        yield "here"


def _progress(step: BlobProgress) -> Line:
    return {
        "status": f"mending {step.title}",
        "digest": str(step.digest),
        "total": step.total_bytes,
        "completed": step.completed_bytes,
        "resumed": step.resumed_bytes,
    }


def _advice(finding: Finding) -> str:
    if finding.kind == "manifest":
        name = finding.models[0]
        return f"there is no copy of it; `hearth pull {name}` or `hearth create {name}` makes it"
    if finding.kind == "mode":
        return "the file has a second name elsewhere and is left alone"
    return "it is in use"


def _finding(finding: Finding) -> Line:
    return {
        "kind": finding.kind,
        "path": finding.path,
        "message": finding.message,
        "damage": finding.is_damage,
        "models": list(finding.models),
        "bad_bytes": finding.bad_bytes,
    }


def _mended(finding: Finding, how: str) -> Line:
    return {"outcome": {"path": finding.path, "mended": True, "how": how}}


def _unmended(finding: Finding, reason: str) -> Line:
    fields = {"path": finding.path, "mended": False, "reason": reason}
    return {"outcome": {**fields, "models": list(finding.models)}}


def _summary(tally: _Tally) -> Line:
    damage = [finding for finding in tally.findings if finding.is_damage]
    left = [finding for finding in damage if finding not in tally.mended]
    return {
        "status": "success",
        "models": tally.seen.models,
        "blobs": tally.seen.blobs,
        "size": tally.seen.size_bytes,
        "findings": len(tally.findings),
        "damaged": len(damage),
        "mended": len(tally.mended),
        "unmended": len(left),
        "affected": sorted({name for finding in left for name in finding.models}),
    }
