"""Building a bundle in a store: layers, config and manifest from a description.

Owns the order of the work; a failure leaves nothing behind. Knows nothing of HTTP and of paths; the
weights are already in the store.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from modelfile.adapters import check_adapter, check_gains, check_numbers
from modelfile.ast import ROLES
from modelfile.check import check_instruction
from modelfile.description import Description
from modelfile.drafts import check_draft, check_vocabulary
from modelfile.errors import BuildError
from modelfile.load_quantization import OFF
from modelfile.parameters import MAX_STOPS, validate, validate_all
from modelfile.projectors import check_projector, is_projector
from modelfile.templates.renderers import BUILT_IN, needs_template
from registry.bundle import (
    MAX_MESSAGES_BYTES,
    model_header,
    model_layer,
    read_config,
    read_texts,
)
from registry.digest import Digest
from registry.errors import InvalidGguf
from registry.formats.gguf import GgufHeader
from registry.formats.gguf.architectures import check_model
from registry.formats.gguf.header import SPEECH
from registry.manifest import (
    ADAPTER_TYPE,
    CONFIG_TYPE,
    DRAFT_TYPE,
    LICENSE_TYPE,
    MESSAGES_TYPE,
    MODEL_TYPE,
    PARAMS_TYPE,
    PROJECTOR_TYPE,
    PROMPT_TYPE,
    SYSTEM_TYPE,
    TEMPLATE_TYPE,
    Descriptor,
    Manifest,
)
from registry.store import Store

ECHO_ARCHITECTURE = "hearth-echo"


@dataclass(frozen=True, slots=True)
class _Base:
    """What a new bundle starts from."""

    model: Descriptor
    layers: tuple[Descriptor, ...]
    header: GgufHeader
    parameters: Mapping[str, Any]
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """A layer of the new bundle. content: None when the store has it already."""

    layer: Descriptor
    content: bytes | None = None

    @classmethod
    def made(cls, media_type: str, content: bytes) -> _Part:
        return cls(Descriptor(media_type, Digest.of(content), len(content)), content)


def build(
    store: Store, description: Description, without_kernels: str | None = None
) -> Iterator[str]:
    """Build the bundle, giving a line of progress before each step, "success" last. The model
    file's header is checked first. A model of the same name is replaced at the end.
    without_kernels: why hearth's kernels take no part on llama.cpp, where that is known.

    A build that fails, or whose iterator is closed, leaves nothing. Raises BuildError,
    ParameterError, TemplateError, InvalidGguf, ModelMissing, BlobMissing, StoreReadOnly,
    StoreFull, StoreFault.
    """
    if (description.from_model is None) == (not description.files):
        raise BuildError(
            'give either "from", the name of an installed model, or "files", one GGUF file'
        )
    check_description(description)
    yield "reading the model"
    base = _from_file(store, description) if description.files else _from_model(store, description)
    _check_family_names(description, base.config)
    others = [
        *_projector(store, description, base),
        *_adapters(store, description, base, without_kernels),
        *_draft(store, description, base),
    ]
    _check_template(description, base)
    layers = _layers(description, base, others)
    config = _config(description, base, [part.layer for part in layers])
    parts = [*layers, _Part.made(CONFIG_TYPE, config)]
    made: list[Digest] = []
    try:
        with store.holding([part.layer.digest for part in parts]):
            yield from _write(store, parts, made)
            yield "writing manifest"
            *first, last = (part.layer for part in parts)
            store.put_manifest(description.name, Manifest(last, tuple(first)))
    finally:
        store.discard(made)
    yield "success"


def check_description(description: Description) -> None:
    """Refuse texts, parameters and templates that no model can have; the weights are not looked
    at. Raises BuildError, ParameterError, TemplateError."""
    validate_all(description.parameters)
    if description.from_model is None:
        _check_family_names(description, {})
    for instruction in ("template", "system", "requires"):
        check_instruction(instruction, getattr(description, instruction) or "")
    for text in description.licenses:
        check_instruction("license", text)
    for message in description.messages or ():
        if message.role not in ROLES:
            raise BuildError(
                f"invalid message role {message.role[:40]!r}, expected {', '.join(ROLES)}"
            )


def _check_family_names(description: Description, inherited: Mapping[str, Any]) -> None:
    """Refuse a renderer or a parser that hearth does not know. inherited: the configuration of the
    model that it is made from, whose names are taken as they are. Raises BuildError."""
    for instruction in ("renderer", "parser"):
        name = getattr(description, instruction)
        if name != inherited.get(instruction):
            check_instruction(instruction, name or "")


def _from_file(store: Store, description: Description) -> _Base:
    if len(description.files) != 1:
        names = ", ".join(sorted(description.files)[:5])
        raise BuildError(f"expected one GGUF file, got {len(description.files)} ({names})")
    ((_, digest),) = description.files.items()
    model, header = _weights(store, digest)
    return _Base(model, (), header, {}, {})


def _weights(store: Store, digest: Digest) -> tuple[Descriptor, GgufHeader]:
    path = store.blob_path(digest)
    try:
        header = model_header(path)
        check_header(header)
    except InvalidGguf:
        store.discard([digest])
        raise
    return Descriptor(MODEL_TYPE, digest, header.file_size_bytes), header


def check_header(header: GgufHeader) -> None:
    """Refuse a GGUF that holds no whole language model. Raises BuildError, InvalidGguf."""
    if header.split_count > 1:
        raise BuildError(
            f"the file is one of {header.split_count} parts; give the other parts, too"
        )
    if is_projector(header):
        raise BuildError(
            "the GGUF is a multimodal projector, not a language model; give the model too, with"
            " a FROM of its own"
        )
    kind = header.metadata.get("general.type")
    if kind in ("adapter", "imatrix") or header.architecture == "clip":
        raise BuildError(
            f"the GGUF file is of type {kind or header.architecture}; name that of a language model"
        )
    if header.architecture in SPEECH and not header.is_speech:
        raise BuildError(
            f"the GGUF file is a {header.architecture} model of another program; give a folder of"
            " CTranslate2 for Whisper, and the .onnx file of a Piper voice"
        )
    if not header.tensors and header.architecture != ECHO_ARCHITECTURE:
        raise InvalidGguf("the file has a vocabulary and no tensors; use the whole model's file")
    check_model(header)


def _from_model(store: Store, description: Description) -> _Base:
    assert description.from_model is not None
    stored = store.get(description.from_model)
    manifest = stored.manifest
    if stored.fault is not None:
        raise BuildError(
            f"model {stored.name.short} is damaged: {stored.fault}; pull or create it again"
        )
    model = model_layer(manifest)
    others = tuple(layer for layer in manifest.layers if layer is not model)
    if description.weights is None:
        header = model_header(store.blob_path(model.digest))
    else:
        model, header = _weights(store, description.weights)
    parameters = read_texts(store, manifest).parameters
    return _Base(model, others, header, parameters, read_config(store, manifest))


def _projector(store: Store, description: Description, base: _Base) -> list[_Part]:
    """The layer of the projector, checked against the weights: a new one, or that of the base with
    new weights. Raises BuildError, InvalidGguf."""
    if description.projector is None:
        for layer in base.layers:
            if layer.media_type == PROJECTOR_TYPE and description.weights is not None:
                check_projector(model_header(store.blob_path(layer.digest)), base.header)
        return []
    header = model_header(store.blob_path(description.projector))
    check_projector(header, base.header)
    return [_Part(Descriptor(PROJECTOR_TYPE, description.projector, header.file_size_bytes))]


def _adapters(
    store: Store, description: Description, base: _Base, without_kernels: str | None
) -> list[_Part]:
    """The layers of the adapters, each checked against the weights. Raises BuildError."""
    parts = []
    for digest in description.adapters or ():
        header = model_header(store.blob_path(digest))
        check_adapter(header, base.header)
        if not _on_torch(description, base):
            check_gains(header, without_kernels)
        check_numbers(header)
        parts.append(_Part(Descriptor(ADAPTER_TYPE, digest, header.file_size_bytes)))
    return parts


def _on_torch(description: Description, base: _Base) -> bool:
    """Whether the parameters or the file name the backend torch."""
    given = {**base.parameters, **description.parameters}
    backend, quantize = given.get("backend"), given.get("quantize")
    quantizes = quantize not in (None, OFF) and backend in (None, "auto")
    return backend == "torch" or quantizes or base.header.keeps_checkpoint


def _draft(store: Store, description: Description, base: _Base) -> list[_Part]:
    """The layer of the draft model, checked against the model. Raises BuildError, InvalidGguf."""
    if description.draft is None:
        return []
    layer, header = _weights(store, description.draft)
    if layer.digest == base.model.digest:
        raise BuildError("DRAFT is the model itself; name a smaller model with the same vocabulary")
    check_draft(header, base.header)
    check_vocabulary(header, base.header)
    return [_Part(dataclasses.replace(layer, media_type=DRAFT_TYPE))]


def _check_template(description: Description, base: _Base) -> None:
    """Refuse a RENDERER that is not built in where nothing stands in for it, and MESSAGE where
    nothing says how turns are written. Raises BuildError."""
    inherited = any(layer.media_type == TEMPLATE_TYPE for layer in base.layers)
    template, own = description.template, base.header.chat_template
    renderer = description.renderer or base.config.get("renderer")
    new = description.renderer not in (None, base.config.get("renderer"))
    if new and not inherited and needs_template(renderer, template, own):
        raise BuildError(
            f"RENDERER {renderer} is not built in, and the model file has no chat template; give a"
            f" TEMPLATE, or one of {', '.join(sorted(BUILT_IN))}"
        )
    if description.messages and not (template or inherited or renderer or own):
        raise BuildError(
            "MESSAGE needs a chat template, and this base model has none; add TEMPLATE"
        )


def _layers(description: Description, base: _Base, others: list[_Part]) -> list[_Part]:
    replaced = _replaced_types(description)
    kept = [layer for layer in base.layers if layer.media_type not in replaced]
    new = [_Part.made(kind, content) for kind, content in _new_layers(description, base)]
    added = [part for part in new if part.layer not in kept]  # a license is not told twice
    return [_Part(base.model), *others, *(_Part(layer) for layer in kept), *added]


def _write(store: Store, parts: list[_Part], made: list[Digest]) -> Iterator[str]:
    """Write what is not in the store yet, noting it in made before."""
    for part in parts:
        digest = part.layer.digest
        if part.content is None or store.has_blob(digest):
            yield f"using existing layer {digest}"
            continue
        yield f"creating new layer {digest}"
        made.append(digest)
        with store.blob_writer(digest, len(part.content)) as writer:
            writer.write(part.content)
            writer.commit()


def _replaced_types(description: Description) -> frozenset[str]:
    """The layers of the base that the description stands in for."""
    given = {
        TEMPLATE_TYPE: description.template is not None,
        PROMPT_TYPE: description.template is not None,
        SYSTEM_TYPE: description.system is not None,
        PARAMS_TYPE: bool(description.parameters),
        MESSAGES_TYPE: description.messages is not None,
        ADAPTER_TYPE: description.adapters is not None,
        DRAFT_TYPE: description.draft is not None,
        PROJECTOR_TYPE: description.projector is not None,
    }
    return frozenset(kind for kind, is_given in given.items() if is_given)


def _new_layers(description: Description, base: _Base) -> Iterator[tuple[str, bytes]]:
    if description.template:
        yield TEMPLATE_TYPE, description.template.encode("utf-8", "replace")
    if description.system:
        yield SYSTEM_TYPE, description.system.encode("utf-8", "replace")
    if description.parameters:
        yield PARAMS_TYPE, _json(dict(base.parameters) | _checked(description.parameters))
    if description.messages:
        turns = [{"role": m.role, "content": m.content} for m in description.messages]
        content = _json(turns)
        if len(content) > MAX_MESSAGES_BYTES:
            raise BuildError(
                f"the messages have {len(content)} bytes, at most {MAX_MESSAGES_BYTES} are allowed"
            )
        yield MESSAGES_TYPE, content
    for text in description.licenses:
        yield LICENSE_TYPE, text.encode("utf-8", "replace")


def _checked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    values = validate_all(parameters)
    if "stop" in values:
        stops = tuple(dict.fromkeys(values["stop"]))
        values["stop"] = list(validate("stop", stops[: MAX_STOPS + 1]))
    return values


def _config(description: Description, base: _Base, layers: list[Descriptor]) -> bytes:
    header = base.header
    seeing = any(layer.media_type == PROJECTOR_TYPE for layer in layers)
    figures = {
        "renderer": description.renderer,
        "parser": description.parser,
        "requires": description.requires,
        "perplexity": description.perplexity,
        "model_format": "gguf",
        "model_family": header.architecture,
        "model_families": [header.architecture, *(["clip"] if seeing else [])],
        "model_type": header.parameter_size,
        "file_type": header.quantization,
        "context_length": header.context_length,
        "embedding_length": header.embedding_length,
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [str(layer.digest) for layer in layers]},
    }
    inherited = dict(base.config)
    if description.weights is not None:
        inherited.pop("perplexity", None)  # of other weights
    return _json({**inherited, **{k: v for k, v in figures.items() if v is not None}})


def _json(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), sort_keys=isinstance(value, dict))
    return text.encode("ascii")
