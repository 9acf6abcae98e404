"""POST /api/create: build a model in the store, with progress as NDJSON.

Owns the order: a model that is not installed is pulled, the weights are made, the bundle is
built, and files that were uploaded for it and are in no model are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace

from modelfile.build import build, check_description
from modelfile.description import Description
from modelfile.quantization import quantization_type, tensor_type
from registry.bundle import BundleMessage
from registry.digest import Digest
from runner.errors import InvalidRequest
from runner.library.from_model import find_or_pull
from runner.library.lookup import parse_name
from runner.library.progress import wait_ended
from runner.library.weight_files import check_names, without_projector
from runner.library.weights import QuantizationRequest, WeightsBuilder, WeightsInput
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import ProgressStream
from runner.server.ollama.wire import CreateRequest

_OF_DRAFTS = ("allow_requantize",)  # fields for draft_quantize too


async def create(http: HttpRequest) -> None:
    """Build a model from an installed one, one to be pulled, or uploaded files. A client that
    leaves before the end leaves nothing behind."""
    asked = await http.read(CreateRequest)
    description, given = _description(asked), _ingredients(asked)
    draft = _draft_ingredients(asked)
    digests = given.digests | draft.digests
    await asyncio.to_thread(check_description, description)
    answer = ProgressStream(http, asked.stream is not False)
    async with http.cancelled_on_disconnect():
        try:
            with http.services.library.store.holding(digests):
                await _create(http, asked, description, (given, draft), answer)
        finally:
            await asyncio.to_thread(http.services.library.store.discard, digests)
        await answer.finish({"status": "success"})


async def _create(
    http: HttpRequest,
    asked: CreateRequest,
    description: Description,
    ingredients: tuple[WeightsInput, WeightsInput],
    answer: ProgressStream,
) -> None:
    """ingredients: of the model and of its draft model."""
    services = http.services
    given, of_draft = ingredients
    files, projector = await asyncio.to_thread(
        without_projector, services.library.store, given.files
    )
    _check_sources(asked, files, projector)
    given = replace(given, files=files)
    description = replace(description, projector=projector)
    if asked.from_ is not None:
        base = await find_or_pull(services.library, asked.from_, answer.tell)
        description = replace(description, from_model=base)
        given = replace(given, from_model=base)
    made: list[Digest] = []
    try:
        weights = await WeightsBuilder(services.library.store, given, answer.tell).make()
        made += weights.made
        if of_draft.files:
            drafted = await WeightsBuilder(services.library.store, of_draft, answer.tell).make()
            made += drafted.made
            description = replace(description, draft=drafted.model)
        with services.library.store.holding(made):
            await _build(http, _complete(description, weights.model, weights.adapters), answer)
    finally:
        await asyncio.to_thread(services.library.store.discard, made)
    await services.models.forget(description.name.short)


def _check_sources(
    asked: CreateRequest, files: Mapping[str, Digest], projector: Digest | None
) -> None:
    """files: those of the model itself. Raises InvalidRequest."""
    if asked.from_ is not None and files:
        raise InvalidRequest(
            "give either from, the name of a model, or files, uploaded blobs; with from, files may"
            " only hold its projector for images",
            param="files",
        )
    if asked.from_ is None and not files and projector is not None:
        raise InvalidRequest(
            f"{next(iter(asked.files or {}))[:80]!r} is a projector for images and no model; give"
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


def _description(asked: CreateRequest) -> Description:
    if asked.draft_quantize and not asked.draft_files:
        raise InvalidRequest(
            "draft_quantize is for draft_files, which are missing", param="draft_quantize"
        )
    if asked.from_ is None and not asked.files:
        raise InvalidRequest("give either from, the name of a model, or files, uploaded blobs")
    licenses = [asked.license] if isinstance(asked.license, str) else asked.license or []
    messages = asked.messages
    return Description(
        name=parse_name(asked.model_name),
        template=asked.template,
        system=asked.system,
        parameters=asked.parameters or {},
        messages=None
        if messages is None
        else tuple(BundleMessage(item.role, item.content) for item in messages),
        licenses=tuple(licenses),
        renderer=asked.renderer,
        parser=asked.parser,
        requires=asked.requires,
    )


def _ingredients(asked: CreateRequest) -> WeightsInput:
    for files in (asked.files, asked.adapters):
        check_names(files or {})
    return WeightsInput(
        files=_digests(asked.files),
        adapter_files=_digests(asked.adapters),
        quantization=_quantization(asked),
        keep_quantized=(asked.parameters or {}).get("backend") == "torch",
    )


def _draft_ingredients(asked: CreateRequest) -> WeightsInput:
    check_names(asked.draft_files or {})
    kind = asked.draft_quantize
    allow = bool(asked.allow_requantize)
    wanted = None
    if kind is not None:
        wanted = QuantizationRequest(quantization_type(kind).name, allow_requantize=allow)
    return WeightsInput(files=_digests(asked.draft_files), quantization=wanted)


def _digests(files: Mapping[str, str] | None) -> dict[str, Digest]:
    return {name: Digest.parse(digest) for name, digest in (files or {}).items()}


def _quantization(asked: CreateRequest) -> QuantizationRequest | None:
    if not asked.quantize:
        for field in ("imatrix", "calibrate", "tensor_types", "allow_requantize"):
            if getattr(asked, field) and not (field in _OF_DRAFTS and asked.draft_quantize):
                raise InvalidRequest(
                    f"{field} says how to quantize; give quantize too", param=field
                )
        return None
    if asked.imatrix and asked.calibrate:
        raise InvalidRequest("give either imatrix or calibrate, not both", param="calibrate")
    kind = quantization_type(asked.quantize)
    if kind.needs_imatrix and not (asked.imatrix or asked.calibrate):
        raise InvalidRequest(
            f"{kind.name} needs an importance matrix: give imatrix or calibrate", param="quantize"
        )
    overrides = tuple((asked.tensor_types or {}).items())
    for _, name in overrides:
        tensor_type(name)
    return QuantizationRequest(
        type=kind.name,
        overrides=overrides,
        imatrix=Digest.parse(asked.imatrix) if asked.imatrix else None,
        calibration=Digest.parse(asked.calibrate) if asked.calibrate else None,
        allow_requantize=bool(asked.allow_requantize),
    )


async def _build(http: HttpRequest, description: Description, answer: ProgressStream) -> None:
    lines = build(http.services.library.store, description)
    try:
        while (status := await _next(lines)) is not None:
            if status != "success":  # told when the model can be used
                await answer.tell({"status": status})
    finally:
        close = getattr(lines, "close", None)
        if close is not None:
            await asyncio.to_thread(close)


async def _next(lines: Iterator[str]) -> str | None:
    """The next line, made in a thread; a reader that is cancelled waits for the step first."""
    step = asyncio.ensure_future(asyncio.to_thread(next, lines, None))
    try:
        return await asyncio.shield(step)
    finally:
        await wait_ended(step)
