"""POST /api/gc: remove what nothing needs. GET /api/du: what the store takes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from registry.digest import Digest
from registry.errors import InvalidDigest
from registry.gc import GRACE_S, GcOptions, RemovedFile, collect
from registry.store import PARTIAL_KEEP_S
from registry.usage import StoreUsage, measure
from runner.server.http_request import HttpRequest
from runner.server.services import Services
from runner.server.upkeep.ndjson import plain
from runner.server.upkeep.wire import GcRequest


async def gc(http: HttpRequest) -> None:
    """Remove unused blobs and parts of transfers. What a pull, a build or a model in memory uses
    stays. With dry_run the same answer, and nothing goes."""
    asked = await http.read(GcRequest)
    rules = GcOptions(
        grace_s=GRACE_S if asked.grace_s is None else asked.grace_s,
        partial_keep_s=PARTIAL_KEEP_S if asked.partial_age_s is None else asked.partial_age_s,
        in_use=frozenset(in_memory(http.services)),
        dry_run=asked.dry_run,
    )
    collected = await asyncio.to_thread(collect, http.services.library.store, rules)
    await http.reply(
        {
            "blobs": [_removed(item) for item in collected.blobs],
            "partials": [_removed(item) for item in collected.partials],
            "size": collected.size_bytes,
            "skipped": collected.skipped,
            "dry_run": asked.dry_run,
        }
    )


def in_memory(services: Services) -> Iterator[Digest]:
    """The blobs that workers have open or would open again."""
    for resident in services.models.present:
        with contextlib.suppress(InvalidDigest):
            yield Digest.parse(resident.bundle.model_path.name.replace("sha256-", "sha256:", 1))


def _removed(item: RemovedFile) -> dict[str, Any]:
    return {"path": plain(item.path), "size": item.size_bytes}


async def du(http: HttpRequest) -> None:
    """What each model takes, alone and together with others, and what the store takes."""
    usage = await asyncio.to_thread(measure, http.services.library.store)
    await http.reply(usage_fields(usage))


def usage_fields(usage: StoreUsage) -> dict[str, Any]:
    """The answer; all sizes in bytes."""
    models = [
        {
            "name": item.name,
            "size": item.size_bytes,
            "own": item.own_bytes,
            "shared": item.shared_bytes,
        }
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
