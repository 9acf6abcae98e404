"""Makes a model of what a client describes.

Owns the checks of the description and the order: a model that is not installed is pulled, the
weights are built, the bundle is written, and files that were uploaded for it and are in no model
are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec

from modelfile.build import build, check_description
from modelfile.description import Description
from modelfile.quantization import CALIBRATED, quantization_type, tensor_type, weights_type
from registry.bundle import model_layer
from registry.digest import Digest
from registry.progress import Progress
from registry.store import Store
from runner.cancellation import whole
from runner.errors import InvalidRequest
from runner.library.library import Library
from runner.library.progress import ReportProgress
from runner.library.pull import find_or_pull
from runner.library.quantizing import QuantizationRequest
from runner.library.transfers import Reach
from runner.library.weight_files import check_names, without_projector
from runner.library.weights import WeightsBuilder, WeightsInput

_OF_DRAFTS = ("allow_requantize",)  # fields for draft_quantize too


@dataclass(frozen=True, slots=True)
class CreateSources:
    """Where a model's weights come from and how they are stored. from_model and draft: names of
    models, which are pulled when they are not installed. files, adapters, draft_files: digests of
    blobs by the names of their files; imatrix, calibrate and evaluate: digests."""

    from_model: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    adapters: Mapping[str, str] = field(default_factory=dict)
    draft: str | None = None
    draft_files: Mapping[str, str] = field(default_factory=dict)
    quantize: str | None = None
    draft_quantize: str | None = None
    imatrix: str | None = None
    calibrate: str | None = None
    evaluate: str | None = None
    tensor_types: Mapping[str, str] = field(default_factory=dict)
    allow_requantize: bool = False


async def create_model(
    library: Library,
    description: Description,
    sources: CreateSources,
    reach: Reach,
    report: ReportProgress,
) -> None:
    """Make a model of a description without weights. reach: of what has to be pulled. A caller
    that is cancelled leaves nothing behind.

    Raises InvalidRequest, BuildError, ModelNotFound, RemoteError, StoreError, and what a job
    raises.
    """
    _check_sources(sources)
    _check_backend(sources, description)
    keep_quantized = description.parameters.get("backend") == "torch"
    model = replace(_model_input(sources), keep_quantized=keep_quantized)
    draft = _draft_input(sources)
    digests = model.digests | draft.digests
    await asyncio.to_thread(check_description, description)
    try:
        with library.store.holding(digests):
            await _create(library, sources, description, (model, draft), reach, report)
    finally:
        await asyncio.to_thread(library.store.discard, digests)


async def _create(
    library: Library,
    sources: CreateSources,
    description: Description,
    inputs: tuple[WeightsInput, WeightsInput],
    reach: Reach,
    report: ReportProgress,
) -> None:
    """inputs: of the model and of its draft model."""
    store, (model, draft) = library.store, inputs
    files, projector = await asyncio.to_thread(without_projector, store, model.files)
    _check_projector(sources, files, projector)
    model = replace(model, files=files)
    description = replace(description, projector=projector)
    if sources.from_model is not None:
        base = await find_or_pull(library, sources.from_model, report, reach)
        description = replace(description, from_model=base)
        model = replace(model, from_model=base)
    if sources.draft is not None:
        name = await find_or_pull(library, sources.draft, report, reach, "draft")
        draft = replace(draft, from_model=name)
    written: list[Digest] = []
    try:
        weights = await WeightsBuilder(store, model, report).build()
        written += weights.written
        if draft.files or draft.from_model is not None:
            drafted = await WeightsBuilder(store, draft, report).build()
            written += drafted.written
            description = replace(description, draft=drafted.model or _weights(store, draft))
        with store.holding(written):
            complete = _complete(description, weights.model, weights.adapters)
            complete = replace(complete, perplexity=weights.perplexity)
            await _build(library, complete, report)
    finally:
        await asyncio.to_thread(store.discard, written)
    await library.on_change(description.name.short)


def _weights(store: Store, inputs: WeightsInput) -> Digest:
    """Those of the installed model. Raises ModelMissing."""
    assert inputs.from_model is not None
    return model_layer(store.get(inputs.from_model).manifest).digest


def _check_sources(sources: CreateSources) -> None:
    if sources.draft is not None and sources.draft_files:
        raise InvalidRequest("give either draft or draft_files", param="draft")
    if sources.draft_quantize and sources.draft is None and not sources.draft_files:
        raise InvalidRequest("draft_quantize requires draft or draft_files", param="draft_quantize")
    if sources.from_model is None and not sources.files:
        raise InvalidRequest("give either from, the name of a model, or files, uploaded blobs")


def _check_backend(sources: CreateSources, description: Description) -> None:
    """Raises InvalidRequest for weights that another backend runs than the Modelfile names."""
    kind, backend = (sources.quantize or "").strip().upper(), description.parameters.get("backend")
    if kind in CALIBRATED and backend not in (None, "auto", "torch"):
        raise InvalidRequest(
            f"{kind} runs on the backend torch only: leave out PARAMETER backend {backend}",
            param="quantize",
        )


def _check_projector(
    sources: CreateSources, files: Mapping[str, Digest], projector: Digest | None
) -> None:
    """files: those of the model itself. Raises InvalidRequest."""
    if sources.from_model is not None and files:
        raise InvalidRequest(
            "give either from, the name of a model, or files, uploaded blobs; with from, files may"
            " only hold its projector for images",
            param="files",
        )
    if sources.from_model is None and not files and projector is not None:
        raise InvalidRequest(
            f"{next(iter(sources.files))[:80]!r} is a projector for images and no model; give"
            " the model's file too, or its name in from",
            param="files",
        )


def _complete(
    description: Description, model: Digest | None, adapters: tuple[Digest, ...] | None
) -> Description:
    if description.from_model is not None:
        return replace(description, weights=model, adapters=adapters)
    assert model is not None
    return replace(description, files={"model": model}, adapters=adapters)


def _model_input(sources: CreateSources) -> WeightsInput:
    for files in (sources.files, sources.adapters):
        check_names(files)
    return WeightsInput(
        files=_digests(sources.files),
        adapter_files=_digests(sources.adapters),
        quantization=_quantization(sources),
    )


def _draft_input(sources: CreateSources) -> WeightsInput:
    check_names(sources.draft_files)
    quantization = None
    if sources.draft_quantize is not None:
        kind = quantization_type(sources.draft_quantize).name
        quantization = QuantizationRequest(kind, allow_requantize=sources.allow_requantize)
    return WeightsInput(files=_digests(sources.draft_files), quantization=quantization)


def _digests(files: Mapping[str, str]) -> dict[str, Digest]:
    return {name: Digest.parse(digest) for name, digest in files.items()}


def _quantization(sources: CreateSources) -> QuantizationRequest | None:
    if not sources.quantize:
        for name in ("imatrix", "calibrate", "evaluate", "tensor_types", "allow_requantize"):
            if getattr(sources, name) and not (name in _OF_DRAFTS and sources.draft_quantize):
                raise InvalidRequest(f"{name} requires quantize", param=name)
        return None
    if sources.imatrix and sources.calibrate:
        raise InvalidRequest("use either imatrix or calibrate, not both", param="calibrate")
    kind = weights_type(sources.quantize)
    if kind.name in CALIBRATED:
        _check_calibrated(sources, kind.name)
    if kind.needs_imatrix and not (sources.imatrix or sources.calibrate):
        raise InvalidRequest(
            f"{kind.name} needs an importance matrix: give imatrix or calibrate", param="quantize"
        )
    overrides = tuple(sources.tensor_types.items())
    for _, name in overrides:
        tensor_type(name)
    return QuantizationRequest(
        type=kind.name,
        overrides=overrides,
        imatrix=Digest.parse(sources.imatrix) if sources.imatrix else None,
        calibration=Digest.parse(sources.calibrate) if sources.calibrate else None,
        evaluation=Digest.parse(sources.evaluate) if sources.evaluate else None,
        allow_requantize=sources.allow_requantize,
    )


def _check_calibrated(sources: CreateSources, kind: str) -> None:
    """Raises InvalidRequest for what goes with GGUF's types only, and where PyTorch is missing."""
    for name in ("imatrix", "tensor_types"):
        if getattr(sources, name):
            raise InvalidRequest(f"{name} is for GGUF's types and not for {kind}", param=name)
    if find_spec("torch") is None:
        raise InvalidRequest(
            f"{kind} is made by PyTorch, which is not installed: install hearth with ./install.sh"
            " --with-torch, or choose a type of GGUF",
            param="quantize",
        )


async def _build(library: Library, description: Description, report: ReportProgress) -> None:
    alone = await library.without_kernels() if description.adapters else None
    lines = build(library.store, description, alone)
    try:
        while (status := await whole(asyncio.to_thread(next, lines, None))) is not None:
            if status != "success":  # reported when the model can be used
                await report(Progress(status))
    finally:
        close = getattr(lines, "close", None)
        if close is not None:
            await asyncio.to_thread(close)
