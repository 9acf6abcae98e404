"""POST /api/import: models of Ollama, LM Studio and the Hugging Face cache, without a copy.

The answer is NDJSON: a line with "found" for each model, {"status", "total", "completed"} while
one is taken, a line with "note" for what does not come with it, a line with "imported" for each
that was taken or refused, and at last {"status": "success"} with the sums. Owns these lines.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

from modelfile.build import build
from modelfile.description import Description
from modelfile.errors import ModelfileError
from registry.digest import Digest
from registry.errors import RegistryError, StoreError, StoreReadOnly
from registry.foreign.link import ImportProgress, import_file
from registry.foreign.models import ForeignModel
from registry.manifest import Manifest
from registry.store import Store
from runner.errors import HearthError, InvalidRequest, Unsupported
from runner.library.import_candidates import ImportCandidate, import_candidates
from runner.library.model_builder import projector_fault
from runner.library.progress import ReportProgress, run_with_progress
from runner.library.weights import WeightsBuilder, WeightsInput
from runner.server.http_request import HttpRequest
from runner.server.ollama.transfers import is_on_this_machine
from runner.server.upkeep.ndjson import write_line
from runner.server.upkeep.wire import ImportRequest

Line = dict[str, Any]

_PROJECTOR = "mmproj"  # no name of a file of weights, which end with .gguf


async def import_models(http: HttpRequest) -> None:
    """List another program's models, and take those that are asked for. A client that leaves
    ends it; the models that were taken stay."""
    asked = await http.read(ImportRequest)
    store = http.services.library.store
    if store.read_only and not asked.dry_run:
        raise StoreReadOnly("import models")
    if asked.path is not None and not is_on_this_machine(http):
        raise InvalidRequest("path is for clients on the daemon's machine", param="path")
    async with http.cancelled_on_disconnect():
        found = await asyncio.to_thread(import_candidates, store, asked)
        for candidate in found:
            await write_line(http, {"found": _found(candidate)})
        ways: Counter[str] = Counter()
        for candidate in () if asked.dry_run else found:
            if candidate.state == "new":
                await _import(http, candidate.model, asked.copy_files, ways)
        await write_line(http, _summary(found, ways))
        await http.finish()


async def _import(http: HttpRequest, model: ForeignModel, copy: bool, ways: Counter[str]) -> None:
    async def tell(line: Line) -> None:
        await write_line(http, line)

    short = model.name.short
    try:
        await _adopt(http.services.library.store, model, copy, ways, tell)
    except StoreError:
        raise
    except (RegistryError, ModelfileError, HearthError) as error:
        ways["refused"] += 1
        needed = getattr(error, "size_bytes", None)
        refused = {"model": short, "imported": False, "reason": error.message}
        await tell({"imported": {**refused, "copy_bytes": needed}})
        return
    ways["models"] += 1
    await http.services.models.forget(short)
    await tell({"imported": {"model": short, "imported": True}})


async def _adopt(
    store: Store, model: ForeignModel, copy: bool, ways: Counter[str], tell: ReportProgress
) -> None:
    """Take a model; what fails leaves nothing."""
    if model.content is None and len(model.files) > 1 and not copy:
        raise Unsupported(
            f"{model.name.short} is cut into {len(model.files)} files; joining them takes "
            f"{model.size_bytes} bytes: --copy allows it"
        )
    digests: dict[str, Digest] = {}
    with store.holding(file.digest for file in model.all_files if file.digest is not None):
        try:
            work = partial(_take, store, model, copy, ways, digests)
            await run_with_progress(work, f"importing {model.name.short}", model.size_bytes, tell)
            with store.holding(digests.values()):
                await _install(store, model, digests, tell)
        finally:
            await asyncio.to_thread(store.discard, digests.values())


def _take(
    store: Store,
    model: ForeignModel,
    copy: bool,
    ways: Counter[str],
    digests: dict[str, Digest],
    report: ImportProgress,
) -> None:
    """Make the files blobs; digests gets them under names that a build takes: the Hub's files
    are named by their digest. Blocks on the disk."""
    for number, file in enumerate(model.all_files, 1):
        digest, way = import_file(store, file, copy, report)
        name = f"{number:05}-{model.name.model}.gguf"
        digests[_PROJECTOR if file is model.projector else name] = digest
        ways[way] += file.size_bytes


async def _install(
    store: Store, model: ForeignModel, digests: dict[str, Digest], tell: ReportProgress
) -> None:
    if model.content is not None:
        manifest = Manifest.from_bytes(model.content)
        await asyncio.to_thread(store.put_manifest, model.name, manifest, model.content)
        return
    files = {name: digest for name, digest in digests.items() if name != _PROJECTOR}
    weights = await WeightsBuilder(store, WeightsInput(files=files), tell).make()
    assert weights.model is not None
    projector = await _projector(store, digests.get(_PROJECTOR), weights.model, tell)
    description = Description(model.name, files={"model.gguf": weights.model}, projector=projector)
    try:
        with store.holding(weights.made):
            await asyncio.to_thread(lambda: list(build(store, description)))
    finally:
        await asyncio.to_thread(store.discard, weights.made)


async def _projector(
    store: Store, projector: Digest | None, model: Digest, tell: ReportProgress
) -> Digest | None:
    """The projector; None, which is told, for one that the model cannot use."""
    if projector is None:
        return None
    fault = await asyncio.to_thread(projector_fault, store, projector, model)
    if fault is not None:
        await tell({"note": f"the projector is left out: {fault}"})
    return projector if fault is None else None


def _found(candidate: ImportCandidate) -> Line:
    model = candidate.model
    return {
        "model": model.name.short,
        "size": model.size_bytes,
        "files": len(model.files),
        "state": candidate.state,
        "reason": candidate.reason,
    }


def _summary(found: list[ImportCandidate], ways: Counter[str]) -> Line:
    return {
        "status": "success",
        "models": len(found),
        "taken": ways["models"],
        "refused": ways["refused"],
        "linked_bytes": ways["link"] + ways["reflink"],
        "copied_bytes": ways["copy"],
    }
