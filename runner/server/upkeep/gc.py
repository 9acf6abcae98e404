"""POST /api/gc: remove what nothing needs. GET /api/du: what the store takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from runner.library.gc import RemovedFile, StoreUsage, collect_garbage, measure_store
from runner.server.answers import DiskUsageResponse, GcRemovedFile, GcResponse, ModelSpace
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import printable
from runner.server.routes import route
from runner.server.upkeep.wire import GcRequest


@route("POST", "/api/gc")
async def gc(http: HttpRequest, body: GcRequest) -> GcResponse:
    """Remove unused blobs and partial transfers. Files that a pull, a build or a model in memory
    uses are kept. With dry_run the answer is the same, but nothing is removed."""
    result = await asyncio.to_thread(
        collect_garbage,
        http.services.library,
        grace_s=body.grace_s,
        partial_age_s=body.partial_age_s,
        in_use=[Path(load.plan.load_plan.path) for load in http.services.models.present],
        dry_run=body.dry_run,
    )
    return GcResponse(
        blobs=[_removed(item) for item in result.blobs],
        partials=[_removed(item) for item in result.partials],
        size=result.size_bytes,
        skipped=result.skipped,
        dry_run=body.dry_run,
    )


def _removed(item: RemovedFile) -> GcRemovedFile:
    return {"path": printable(item.path), "size": item.size_bytes}


@route("GET", "/api/du")
async def du(http: HttpRequest) -> DiskUsageResponse:
    """Disk usage of each model, alone and shared, and of the store."""
    return usage_fields(await asyncio.to_thread(measure_store, http.services.library))


def usage_fields(usage: StoreUsage) -> DiskUsageResponse:
    """The answer; all sizes in bytes."""
    models = [
        ModelSpace(
            name=item.name,
            size=item.size_bytes,
            own=item.own_bytes,
            shared=item.shared_bytes,
        )
        for item in usage.models
    ]
    return {
        "models": models,
        "blobs": usage.blob_bytes,
        "unused": usage.unused_bytes,
        "linked": usage.linked_bytes,
        "partials": usage.partial_bytes,
        "other": usage.other_bytes,
        "total": usage.total_bytes,
        "free": usage.free_bytes,
    }
