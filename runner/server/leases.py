"""The use of a model by one HTTP request, and what a model must be able to do for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from runner.errors import InvalidRequest, Unsupported
from runner.models.lease import Lease
from runner.server.body_budget import hold_answer
from runner.server.caller import current_caller
from runner.server.http_request import HttpRequest, warn
from runner.server.keep_alive import keep_alive_s
from runner.server.request_log import current_record
from runner.types import OWN_FORM, Adapters, EmbeddingForm, Embeddings, GenerateRequest

_NUMBER_BYTES = 32  # of a vector, in Python


@asynccontextmanager
async def leased(
    http: HttpRequest, model: str, keep_alive: Any, options: Mapping[str, Any] | None = None
) -> AsyncIterator[Lease]:
    """A model, for as long as the client waits. The body must have been read. options are checked.
    Raises what leasing raises, InvalidRequest for the keep_alive."""
    keep_s = keep_alive_s(keep_alive)
    async with (
        http.cancelled_on_disconnect(),
        http.services.models.lease(model, options or {}, keep_s) as lease,
    ):
        tell_notes(lease)
        yield lease


def tell_notes(lease: Lease) -> None:
    """Let the answer and the log say which options of the request have no effect, and its record
    how long it waited for the model."""
    if record := current_record():
        record.lease(lease.load_s)
    warn(lease.bundle.name.short, lease.notes)


def cache_salt(lease: Lease, own: str | None = None) -> str:
    """The salt under which the request's prefixes are cached. own: the request's own cache_salt.
    Models that share a worker, and keys, learn nothing about each other's prompts."""
    return f"{lease.bundle.digest.hex[:16]}:{current_caller().id}:{own or ''}"


def acting_adapters(lease: Lease, asked: Mapping[int, float] | None) -> Adapters:
    """Which of the model's adapters act, and how strongly. asked: by the request, by their numbers.
    Raises InvalidRequest for adapters that it does not have."""
    files, own = lease.bundle.adapters, lease.parameters.get("lora_scale")
    check_adapters(lease.bundle.name.short, len(files), asked or ())
    if lease.plan.embedding:
        return ()  # they are in it for good
    scales = lease.adapter_scales if asked is None else asked
    if scales is None:
        scales = dict.fromkeys(range(len(files)), 1.0 if own is None else float(own))
    acting = ((file.path.name, scales.get(number, 0.0)) for number, file in enumerate(files))
    return tuple((name, scale) for name, scale in acting if scale)


def check_adapters(name: str, count: int, numbers: Iterable[int]) -> None:
    """Raises InvalidRequest for numbers beyond the count of the model's adapters."""
    wrong = next((number for number in numbers if number >= count), None)
    if wrong is None:
        return
    has = f"adapter {wrong}, only 0 to {count - 1}" if count > 1 else f"adapter {wrong}, only 0"
    raise InvalidRequest(
        f"lora: {name} has no {has if count else 'LoRA adapters'}; GET /lora-adapters lists them",
        param="lora",
    )


def allowed_priority(priority: int) -> int:
    """The priority. Raises InvalidRequest for one that is not the caller's to take."""
    if priority < 0 and not current_caller().admin:
        raise InvalidRequest(
            f"priority={priority}: only keys of the scope admin may go before all others; use 0 or"
            " more",
            param="priority",
        )
    return priority


def require_may_share() -> None:
    """Raises InvalidRequest where the caller may not share prefixes with others."""
    if not current_caller().admin:
        raise InvalidRequest(
            "shared_prefix: only keys of the scope admin may share a prefix with other keys; leave"
            " it out",
            param="shared_prefix",
        )


async def embeddings_of(
    lease: Lease,
    inputs: Sequence[str] | Sequence[Sequence[int]],
    *,
    truncate: bool,
    priority: int = 0,
    salt: str | None = None,
    form: EmbeddingForm = OWN_FORM,
) -> Embeddings:
    """See WorkerHandle.embed; the work counts for the caller. salt: what the request asks for.
    Raises InvalidRequest where each token would have a vector."""
    form = own_form(lease, form)
    if form.pooling == "none":
        raise InvalidRequest(
            "pooling=none: only POST /embedding gives the vector of each token; here use mean, cls"
            " or last",
            param="pooling",
        )
    hold_answer(len(inputs) * (lease.bundle.header.embedding_length or 0) * _NUMBER_BYTES)
    request = GenerateRequest(
        priority=allowed_priority(priority),
        client=current_caller().share,
        cache_salt=cache_salt(lease, salt),
        context_length=lease.context_length,
        form=form,
        adapters=acting_adapters(lease, None),
    )
    return await lease.worker.embed(inputs, request, truncate=truncate)


async def token_embeddings_of(lease: Lease, inputs: Sequence[Sequence[int]]) -> Embeddings:
    """As embeddings_of, with the vectors of each input's tokens, one after the other and as they
    are."""
    request = GenerateRequest(
        client=current_caller().share,
        context_length=lease.context_length,
        form=EmbeddingForm("none", normalize=False),
    )
    return await lease.worker.embed(inputs, request, truncate=False)


def own_form(lease: Lease, form: EmbeddingForm) -> EmbeddingForm:
    """The form, with the pooling of the options or the Modelfile where it names none."""
    if form.pooling is not None:
        return form
    return replace(form, pooling={**lease.parameters, **lease.options}.get("pooling"))


def refuse_speech(lease: Lease) -> None:
    """Raises Unsupported for a speech model, which reads and writes no text."""
    name = lease.bundle.name.short
    if lease.capabilities.transcription:
        raise Unsupported(f"{name} transcribes speech; use /v1/audio/transcriptions", param="model")
    if lease.capabilities.speech:
        raise Unsupported(f"{name} speaks texts; use /v1/audio/speech", param="model")


def require_embedding(lease: Lease, *, trained: bool = False) -> None:
    """Raises Unsupported when the model gives no embeddings. trained: a model that generates, whose
    states tell texts apart badly, will not do."""
    refuse_speech(lease)
    name = lease.bundle.name.short
    if lease.capabilities.rerank:
        raise Unsupported(f"{name} is a reranker; use /v1/rerank or /v1/score")
    if trained and not lease.capabilities.embedding:
        raise Unsupported(f"{name} generates text; use an embedding model or a reranker")
