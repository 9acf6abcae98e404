"""Which files of a bundle are loaded, and by which backend.

Owns the refusals before anything is loaded. Knows nothing of memory.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from modelfile.adapters import check_adapter
from modelfile.build import ECHO_ARCHITECTURE
from modelfile.drafts import check_draft
from modelfile.errors import BuildError
from modelfile.load_quantization import obstacle
from modelfile.templates.renderers import needs_template
from registry.bundle import Bundle, BundleFile
from runner.errors import ModelInvalid
from runner.models.capabilities import model_capabilities
from runner.models.vision import projector_of
from runner.types import BackendName

log = logging.getLogger("hearth.models")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files that a plan loads, and how. adapters: those that are there from the start."""

    path: str
    backend: BackendName
    embedding: bool = False
    ranking: bool = False
    adapters: tuple[str, ...] = ()
    draft: str | None = None
    projector: str | None = None


def model_files(
    bundle: Bundle,
    backend: str | None = None,
    quantize: str | None = None,
    *,
    with_adapters: bool = False,
) -> ModelFiles:
    """Which files to load, and how. backend: the requested one; None and auto: that of the file.
    quantize: what the weights shall become while loading. with_adapters False: those of a model
    that generates come to its worker with the requests. Raises ModelInvalid when its prompts cannot
    be written, an adapter is not for this model, the backend cannot load it, or its weights cannot
    be quantized."""
    if needs_template(bundle.renderer, bundle.template, bundle.header.chat_template):
        raise ModelInvalid(
            f"{bundle.name.short} needs the renderer {bundle.renderer}, which is not built in, and "
            "has no chat template of its own; create it again with a TEMPLATE"
        )
    if quantize is not None:
        _check_quantize(bundle, backend, quantize)
    capabilities = model_capabilities(bundle)
    adapters = _adapters(bundle)
    return ModelFiles(
        path=str(bundle.model_path),
        backend=_backend(bundle, backend),
        embedding=not capabilities.completion and not bundle.header.is_speech,
        ranking=capabilities.rerank,
        adapters=() if capabilities.completion and not with_adapters else adapters,
        draft=_path(draft_model(bundle, backend)),
        projector=_path(projector_of(bundle, backend)) if capabilities.completion else None,
    )


def _check_quantize(bundle: Bundle, backend: str | None, kind: str) -> None:
    header, name = bundle.header, bundle.name.short
    if header.is_speech or header.architecture == ECHO_ARCHITECTURE:
        raise ModelInvalid(
            f"{name} cannot be loaded with quantize {kind}: it is not a language model"
        )
    if backend != "torch":
        raise ModelInvalid(
            f"{name} cannot be loaded with quantize {kind} by the backend {backend}: only torch"
            " quantizes while loading; leave out backend, or use hearth create -q"
        )
    if (fault := obstacle(header, kind)) is not None:
        raise ModelInvalid(f"{name} cannot be loaded with quantize {kind}: {fault}")


def _path(file: BundleFile | None) -> str | None:
    return None if file is None else str(file.path)


def _backend(bundle: Bundle, requested: str | None) -> BackendName:
    own: BackendName = "llamacpp"
    if runs_on_torch(bundle):
        own = "torch"
    elif bundle.header.architecture == ECHO_ARCHITECTURE:
        own = "echo"
    elif bundle.header.is_speech:
        own = "whisper" if bundle.header.architecture == "whisper" else "piper"
    if requested == "torch" and own == "llamacpp":
        own = "torch"
    elif requested not in (None, "auto", own):
        raise ModelInvalid(
            f"{bundle.name.short} cannot be loaded by the backend {requested}: its file is for"
            f" {own}; create it again without PARAMETER backend {requested}"
        )
    if own == "torch":
        _check_for_torch(bundle)
    return own


def runs_on_torch(bundle: Bundle, requested: str | None = None) -> bool:
    """Whether the backend torch loads the model: requested, or the only one that can, for a
    quantized checkpoint that was kept as it is."""
    return requested == "torch" or bundle.header.keeps_checkpoint


def _check_for_torch(bundle: Bundle) -> None:
    """Raises ModelInvalid for what the torch backend does not do."""
    if model_capabilities(bundle).rerank:
        raise ModelInvalid(
            f"{bundle.name.short} scores pairs of texts, which the backend torch does not do;"
            " create it again without PARAMETER backend torch"
        )


def _adapters(bundle: Bundle) -> tuple[str, ...]:
    for adapter in bundle.adapters:
        try:
            check_adapter(adapter.header, bundle.header)
        except BuildError as error:
            raise ModelInvalid(f"{bundle.name.short}: {error}") from None
    return tuple(str(adapter.path) for adapter in bundle.adapters)


def draft_model(bundle: Bundle, backend: str | None = None) -> BundleFile | None:
    """The draft model, unless it is one that cannot propose tokens for this model or backend:
    that changes no answer."""
    draft = None if runs_on_torch(bundle, backend) else bundle.draft
    try:
        if draft is not None:
            check_draft(draft.header, bundle.header)
    except BuildError as error:
        log.warning("%s runs without its draft model: %s", bundle.name.short, error)
        return None
    return draft
