"""POST /api/fsck: check the store, and repair it if requested.

The answer is NDJSON: {"status", "total", "completed"} while blobs are read, a line with "finding"
for each thing that is not as it should be, with repair a line with "outcome" for each that was
repaired or not, and at last {"status": "success"} with the sums. Owns these lines.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from runner.library.fsck import Finding, FsckOutcome, FsckTotals, check_store
from runner.library.progress import Progress
from runner.library.transfers import Reach
from runner.server.access import opens_paths
from runner.server.caller import current_caller
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import ProgressStream
from runner.server.routes import route
from runner.server.sse import NDJSON
from runner.server.upkeep.wire import FsckRequest


@route("POST", "/api/fsck", streams=NDJSON)
async def fsck(http: HttpRequest, body: FsckRequest) -> None:
    """Check the store. If the client disconnects, the check ends; what was repaired stays
    repaired."""
    answer = ProgressStream(http)
    library = http.services.library
    reach = Reach(private=current_caller().trusted, paths=opens_paths(http))
    repair = reach if body.repair else None
    async with http.cancelled_on_disconnect():
        prefixes = http.services.prefixes
        async with aclosing(check_store(library, body.quick, repair, prefixes)) as events:
            async for event in events:
                if isinstance(event, Progress):
                    await answer.report(event)
                else:
                    await answer.tell(_line(event))
        await http.finish()


def _line(event: Finding | FsckOutcome | FsckTotals) -> dict[str, Any]:
    if isinstance(event, Finding):
        return {
            "finding": {
                "kind": event.kind,
                "path": event.path,
                "message": event.message,
                "damage": event.is_damage,
                "models": list(event.models),
            }
        }
    if isinstance(event, FsckOutcome):
        return {"outcome": _outcome(event)}
    return {
        "status": "success",
        "models": event.seen.models,
        "blobs": event.seen.blobs,
        "size": event.seen.size_bytes,
        "findings": len(event.findings),
        "damaged": len(event.damage),
        "mended": len(event.repaired),
        "unmended": len(event.left),
        "affected": sorted({name for finding in event.left for name in finding.models}),
    }


def _outcome(event: FsckOutcome) -> dict[str, Any]:
    path = event.finding.path
    if event.source is not None:
        return {"path": path, "mended": True, "how": event.source}
    models = list(event.finding.models)
    return {"path": path, "mended": False, "reason": event.reason, "models": models}
