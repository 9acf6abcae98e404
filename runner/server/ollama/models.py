"""Installed and loaded models: /api/tags, /api/ps, /api/show, /api/copy, /api/delete."""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from modelfile.render import render
from runner.errors import HearthError
from runner.library.adapters import Parents, parents
from runner.library.descriptions import (
    ModelDetails,
    bundle_details,
    describe_modelfile,
    parameter_lines,
)
from runner.library.lookup import parse_name
from runner.library.models import BundleFile, GgufHeader, LazyArray, StoredModel
from runner.models.capabilities import model_capabilities, template_of
from runner.models.memory_requirement import bits_per_weight, memory_requirement
from runner.models.model_files import draft_model
from runner.models.resident import Load, Resident
from runner.models.vision import projector_fault
from runner.replies import OllamaModelDetails, OllamaModelEntry, RunningModelEntry
from runner.server.http_request import HttpRequest
from runner.server.ollama.answers import OllamaModelFile, PsResponse, ShowResponse, TagsResponse
from runner.server.ollama.wire import CopyRequest, OllamaModelRequest, ShowRequest
from runner.server.routes import route

FOREVER_S = 2**63 / 1e9
_STATS_TIMEOUT_S = 1.0
_ELIDED = 5  # longer arrays of metadata are left out of /api/show unless verbose


@route("GET", "/api/tags", scope="inference")
async def tags(http: HttpRequest) -> TagsResponse:
    """List all installed models, newest first. A damaged one is listed with its fault."""
    models = http.services.library.models()
    http.services.known_models.keep_only(models)
    whose = parents(models)
    return {"models": [await _tag(http, stored, whose) for stored in models]}


async def _tag(http: HttpRequest, stored: StoredModel, whose: Parents) -> OllamaModelEntry:
    facts = await http.services.known_models.facts(stored)
    entry: OllamaModelEntry = {
        "name": stored.name.short_with_tag,
        "model": stored.name.short_with_tag,
        "modified_at": stored.modified_at.isoformat(),
        "size": stored.size_bytes,
        "digest": stored.digest.hex,
        "details": _details(facts.details, whose.get(stored.name)),
        "capabilities": list(facts.capabilities),
    }
    if stored.fault is not None:
        entry["fault"] = stored.fault
    if (mark := http.services.models.crashes.find(str(stored.digest))) is not None:
        entry["crashes"] = str(mark)
    return entry


def _details(details: ModelDetails, parent: StoredModel | None) -> OllamaModelDetails:
    """parent: the model to which this one adds adapters."""
    shown: OllamaModelDetails = {
        "parent_model": "" if parent is None else parent.name.short,
        "format": "gguf",
        "family": details.family,
        "families": list(details.families),
        "parameter_size": details.parameter_size,
        "quantization_level": details.quantization,
    }
    if details.context_length is not None:
        shown["context_length"] = details.context_length
    if details.embedding_length is not None:
        shown["embedding_length"] = details.embedding_length
    return shown


@route("GET", "/api/ps", scope="inference")
async def ps(http: HttpRequest) -> PsResponse:
    """List the loaded models, last used first."""
    residents = http.services.models.residents
    stats = await asyncio.gather(*(_stats(item.load) for item in residents))
    adapted = any(item.bundle.adapters for item in residents)  # else nothing has to be read
    whose = parents(http.services.library.models()) if adapted else {}
    found = zip(residents, stats, strict=True)
    return {"models": [_resident(*each, whose) for each in found]}


async def _stats(item: Load) -> dict[str, Any] | None:
    """The worker's counters; None while it loads or does not answer."""
    if not item.loaded:
        return None
    with contextlib.suppress(TimeoutError, HearthError):
        return asdict(await asyncio.wait_for(item.worker.stats(), _STATS_TIMEOUT_S))
    return None


def _resident(item: Resident, stats: dict[str, Any] | None, whose: Parents) -> RunningModelEntry:
    plan, estimate = item.load.plan.load_plan, item.load.plan.estimate
    name, first = _name(item), item.load.first
    left_s = item.expires_at_s - asyncio.get_running_loop().time()
    if item.users:
        left_s = item.keep_alive_s
    entry: RunningModelEntry = {
        "name": name,
        "model": name,
        "digest": item.bundle.digest.hex,
        "size": estimate.total_bytes if item is first else 0,
        "size_vram": estimate.gpu_bytes if item is first else 0,
        "details": _details(bundle_details(item.bundle), whose.get(item.bundle.name)),
        "expires_at": _expiry(left_s),
        "context_length": item.context_length,
        "pool_tokens": plan.pool_tokens,
        "state": "loaded" if item.load.loaded else "loading",
        "requests": item.users,
        "stats": stats,
    }
    if plan.quantize is not None:
        entry["quantize"] = plan.quantize
    if estimate.devices and item is first:
        entry["devices"] = estimate.device_entries()
    if item is not first:
        entry["shares_memory_of"] = _name(first)
    return entry


def _name(item: Resident) -> str:
    return parse_name(min(item.names, default=item.bundle.name.short)).short_with_tag


def _expiry(left_s: float) -> str:
    """When an idle model goes; for one that stays in 292 years, as Ollama has it."""
    return (datetime.now(UTC) + timedelta(seconds=min(left_s, FOREVER_S))).isoformat()


@route("POST", "/api/show", scope="inference")
async def show(http: HttpRequest, body: ShowRequest) -> ShowResponse:
    """Show an installed model."""
    services = http.services
    stored = services.library.find(body.model_name)
    bundle = await asyncio.to_thread(services.library.read, stored)
    need = memory_requirement(bundle, services.settings)
    bits = bits_per_weight(bundle)
    mark = services.models.crashes.find(str(stored.digest))
    projector, verbose = _file(bundle.projector), bool(body.verbose)
    whose = parents(services.library.models())
    if projector is not None:
        projector["fault"] = projector_fault(bundle)
    answer: ShowResponse = {
        "license": "\n".join(bundle.licenses),
        "modelfile": render(describe_modelfile(bundle)),
        "parameters": parameter_lines(bundle.parameters),
        "template": template_of(bundle) or "",
        "system": bundle.system or "",
        "messages": [{"role": m.role, "content": m.content} for m in bundle.messages],
        "details": _details(bundle_details(bundle), whose.get(stored.name)),
        "model_info": _model_info(bundle.header, verbose=verbose),
        "tensors": [
            {"name": each.name, "type": each.type, "shape": list(each.dimensions)}
            for each in bundle.header.tensors
        ],
        "capabilities": list(model_capabilities(bundle).names()),
        "modified_at": stored.modified_at.isoformat(),
        "digest": stored.digest.hex,
        "weights": bundle.model_path.name.replace("-", ":"),
        "size": stored.size_bytes,
        "crashes": None if mark is None else str(mark),
        "perplexity": None if bundle.perplexity is None else dict(bundle.perplexity),
        "bits_per_weight": None if bits is None else round(bits, 2),
        "memory": None if need is None else {**asdict(need), "total_bytes": need.total_bytes},
        "renderer": bundle.renderer or "",
        "parser": bundle.parser or "",
        "requires": bundle.requires or "",
        "draft": _file(draft_model(bundle)),
        "projector": projector,
        "adapters": sorted(
            name.short for name, parent in whose.items() if parent.name == stored.name
        ),
    }
    if bundle.projector is not None:
        answer["projector_info"] = _model_info(bundle.projector.header, verbose=verbose)
    return answer


def _file(file: BundleFile | None) -> OllamaModelFile | None:
    if file is None:
        return None
    header = file.header
    return {
        "architecture": header.architecture,
        "parameter_size": header.parameter_size,
        "quantization_level": header.quantization,
        "size": file.size_bytes,
    }


def _model_info(header: GgufHeader, *, verbose: bool) -> dict[str, Any]:
    info = {key: _plain(value, verbose) for key, value in header.metadata.items()}
    info["general.parameter_count"] = header.parameter_count
    return info


def _plain(value: Any, verbose: bool) -> Any:
    if isinstance(value, LazyArray):
        return value.load() if verbose else None
    if isinstance(value, tuple) and len(value) > _ELIDED and not verbose:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@route("POST", "/api/copy")
async def copy(http: HttpRequest, body: CopyRequest) -> None:
    """Copy a model to a new name."""
    await http.services.library.copy(body.source, body.destination)
    await http.reply_bytes(b"", "application/json")


@route("DELETE", "/api/delete")
async def delete(http: HttpRequest, body: OllamaModelRequest) -> None:
    """Remove a model and its saved prompts. It is unloaded first, or after its running answers."""
    name = await http.services.library.delete(body.model_name)
    await asyncio.to_thread(http.services.prefixes.clear, name.short)
    await http.reply_bytes(b"", "application/json")
