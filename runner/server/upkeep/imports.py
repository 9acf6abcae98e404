"""POST /api/import: models of Ollama, LM Studio and the Hugging Face cache, without a copy.

The answer is NDJSON: a line with "found" for each model, {"status", "total", "completed"} while
one is taken, a line with "note" for what does not come with it, a line with "imported" for each
that was taken or refused, and at last {"status": "success"} with the sums. Owns these lines.
"""

from __future__ import annotations

from typing import Any

from runner.errors import InvalidRequest
from runner.library.import_candidates import ImportCandidate, ImportOptions
from runner.library.imports import (
    ImportEvent,
    ImportNote,
    ImportOutcome,
    ImportTotals,
    run_import,
)
from runner.library.progress import Progress
from runner.server.access import opens_paths
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import ProgressStream
from runner.server.routes import route
from runner.server.sse import NDJSON
from runner.server.upkeep.wire import ImportRequest


@route("POST", "/api/import", streams=NDJSON)
async def import_models(http: HttpRequest, body: ImportRequest) -> None:
    """List another program's models, and import the requested ones. If the client disconnects, the
    import ends; models already imported stay."""
    if body.path is not None and not opens_paths(http):
        raise InvalidRequest(
            "path is only allowed on the daemon's machine, for its own user or with an admin key",
            param="path",
        )
    options = ImportOptions(
        body.source, body.path, tuple(body.names), body.copy_files, body.dry_run
    )
    answer = ProgressStream(http)

    async def report(event: ImportEvent) -> None:
        if isinstance(event, Progress):
            await answer.report(event)
        else:
            await answer.tell(_line(event))

    async with http.cancelled_on_disconnect():
        await run_import(http.services.library, options, report)
        await http.finish()


def _line(event: ImportCandidate | ImportNote | ImportOutcome | ImportTotals) -> dict[str, Any]:
    if isinstance(event, ImportCandidate):
        return {
            "found": {
                "model": event.model.name.short,
                "size": event.model.size_bytes,
                "files": len(event.model.files),
                "state": event.state,
                "reason": event.reason,
            }
        }
    if isinstance(event, ImportNote):
        return {"note": event.text}
    if isinstance(event, ImportOutcome):
        if event.reason is None:
            return {"imported": {"model": event.model, "imported": True}}
        refused = {"model": event.model, "imported": False, "reason": event.reason}
        return {"imported": {**refused, "copy_bytes": event.copy_bytes}}
    return {
        "status": "success",
        "models": event.models,
        "taken": event.imported,
        "refused": event.refused,
        "linked_bytes": event.linked_bytes,
        "copied_bytes": event.copied_bytes,
    }
