"""Bundles: an installed model read into one value, ready to be loaded.

Owns how layers become parameters, prompts and messages. Knows nothing of which parameters
exist: modelfile.parameters checks them.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.digest import Digest
from registry.errors import BlobDamaged, InvalidGguf, RegistryError, StoreFault
from registry.formats.gguf import GgufHeader, read_header
from registry.manifest import (
    ADAPTER_TYPE,
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
from registry.names import Name
from registry.store import Store, StoredModel

MAX_TEXT_BYTES = 1024 * 1024
MAX_MESSAGES_BYTES = 16 * 1024 * 1024
MAX_CONFIG_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BundleMessage:
    """A turn that the bundle puts before every conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class BundleTexts:
    """What a bundle holds besides its weights."""

    parameters: Mapping[str, Any]
    system: str | None
    template: str | None
    messages: tuple[BundleMessage, ...]
    licenses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A GGUF file that is loaded with the weights: a LoRA adapter, a draft model, a projector."""

    path: Path
    size_bytes: int
    header: GgufHeader


@dataclass(frozen=True, slots=True)
class Bundle:
    """An installed model. digest: of its manifest. template: the bundle's own, None when the
    model file's applies. perplexity: before and after its weights were quantized, where that was
    measured: {"type", "text", "before", "after"}, the last two with perplexity, error, tokens,
    context."""

    name: Name
    digest: Digest
    model_path: Path
    model_size_bytes: int
    parameters: Mapping[str, Any]
    system: str | None
    template: str | None
    messages: tuple[BundleMessage, ...]
    licenses: tuple[str, ...]
    header: GgufHeader
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None
    adapters: tuple[BundleFile, ...] = ()
    draft: BundleFile | None = None
    projector: BundleFile | None = None  # makes embeddings of images
    perplexity: Mapping[str, Any] | None = None


def read_bundle(store: Store, stored: StoredModel) -> Bundle:
    """The bundle of an installed model, the headers of its model file and adapters checked.

    Raises InvalidManifest, BlobMissing, BlobDamaged, DigestMismatch, InvalidGguf, StoreFault.
    """
    model = model_layer(stored.manifest)
    path = _file(store, stored, model, "weights")
    texts = read_texts(store, stored.manifest)
    config = read_config(store, stored.manifest)
    return Bundle(
        name=stored.name,
        digest=stored.digest,
        model_path=path,
        model_size_bytes=model.size_bytes,
        parameters=texts.parameters,
        system=texts.system,
        template=texts.template,
        messages=texts.messages,
        licenses=texts.licenses,
        header=model_header(path),
        renderer=_named(config, "renderer"),
        parser=_named(config, "parser"),
        requires=_named(config, "requires"),
        adapters=_files(store, stored, ADAPTER_TYPE, "adapters"),
        draft=_optional(store, stored, DRAFT_TYPE, "draft model"),
        projector=_optional(store, stored, PROJECTOR_TYPE, "projector"),
        perplexity=_measured(config.get("perplexity")),
    )


def _files(store: Store, stored: StoredModel, kind: str, what: str) -> tuple[BundleFile, ...]:
    found = []
    for layer in stored.manifest.of_type(kind):
        path = _file(store, stored, layer, what)
        found.append(BundleFile(path, layer.size_bytes, model_header(path)))
    return tuple(found)


def _optional(store: Store, stored: StoredModel, kind: str, what: str) -> BundleFile | None:
    """The first one. None also for a file of a kind that is not known: the model answers without
    it."""
    try:
        return next(iter(_files(store, stored, kind, what)), None)
    except InvalidGguf:
        return None


def _file(store: Store, stored: StoredModel, layer: Descriptor, what: str) -> Path:
    """Where the layer lies, whole. Raises BlobMissing, BlobDamaged."""
    size = store.blob_size(layer.digest)
    if size != layer.size_bytes:
        raise BlobDamaged(
            f"the {what} of {stored.name.short} have {size} bytes instead of {layer.size_bytes};"
            " create or pull the model again"
        )
    return store.blob_path(layer.digest)


def read_config(store: Store, manifest: Manifest) -> Mapping[str, Any]:
    """The config of a model; empty when it is not a JSON object, as hearth needs none of it. Raises
    BlobMissing, DigestMismatch, StoreFault."""
    try:
        value = _json(store, manifest.config, MAX_CONFIG_BYTES)
    except BlobDamaged:
        return {}
    return value if isinstance(value, dict) else {}


def _named(config: Mapping[str, Any], field: str) -> str | None:
    value = config.get(field)
    return value if isinstance(value, str) and value else None


def _measured(value: Any) -> Mapping[str, Any] | None:
    """What others wrote is taken where it is of that form, else left out: nothing depends on it."""
    if not isinstance(value, dict):
        return None
    for name in ("before", "after"):
        side = value.get(name)
        for key in ("perplexity", "tokens"):
            number = side.get(key) if isinstance(side, dict) else None
            if not isinstance(number, int | float) or not number > 0:
                return None
    return value if all(isinstance(value.get(key), str) for key in ("type", "text")) else None


def model_header(path: Path) -> GgufHeader:
    """The checked header of a model file, read once for as long as the file stays the same: a
    large vocabulary takes some tenths of a second. Raises InvalidGguf, BlobDamaged, StoreFault."""
    try:
        status = os.stat(path)
        return _header(path, (status.st_ino, status.st_size, status.st_mtime_ns))
    except OSError as error:
        raise StoreFault("read the model file", error.errno) from error


@functools.lru_cache(maxsize=64)
def _header(path: Path, _identity: tuple[int, int, int]) -> GgufHeader:
    return read_header(path)


def model_layer(manifest: Manifest) -> Descriptor:
    """The layer with the weights. Raises BlobDamaged when there is none, or several."""
    layers = manifest.of_type(MODEL_TYPE)
    if len(layers) != 1:
        raise BlobDamaged(f"the model has {len(layers)} layers of weights, expected one")
    return layers[0]


def read_texts(store: Store, manifest: Manifest) -> BundleTexts:
    """The small layers of a model. Raises BlobMissing, BlobDamaged, DigestMismatch, StoreFault."""
    return BundleTexts(
        parameters=_parameters(store, manifest),
        system=_last_text(store, manifest, SYSTEM_TYPE),
        template=_last_text(store, manifest, TEMPLATE_TYPE, PROMPT_TYPE),
        messages=_messages(store, manifest),
        licenses=tuple(_text(store, layer) for layer in manifest.of_type(LICENSE_TYPE)),
    )


def _text(store: Store, layer: Descriptor) -> str:
    content = store.read_blob(layer.digest, MAX_TEXT_BYTES)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise BlobDamaged(f"the layer {layer.media_type} is not UTF-8 text") from None


def _last_text(store: Store, manifest: Manifest, *media_types: str) -> str | None:
    layers = [layer for layer in manifest.layers if layer.media_type in media_types]
    return _text(store, layers[-1]) if layers else None


def _json(store: Store, layer: Descriptor, limit_bytes: int) -> Any:
    try:
        return json.loads(store.read_blob(layer.digest, limit_bytes))
    except RegistryError:
        raise
    except (ValueError, RecursionError) as error:
        raise BlobDamaged(f"the layer {layer.media_type} is not JSON: {error}") from None


def _parameters(store: Store, manifest: Manifest) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for layer in manifest.of_type(PARAMS_TYPE):
        value = _json(store, layer, MAX_TEXT_BYTES)
        if not isinstance(value, dict):
            raise BlobDamaged("the layer of parameters is not a JSON object")
        found.update(value)
    return found


def _messages(store: Store, manifest: Manifest) -> tuple[BundleMessage, ...]:
    found: list[BundleMessage] = []
    for layer in manifest.of_type(MESSAGES_TYPE):
        value = _json(store, layer, MAX_MESSAGES_BYTES)
        if not isinstance(value, list):
            raise BlobDamaged("the layer of messages is not a JSON list")
        found.extend(_message(item) for item in value)
    return tuple(found)


def _message(value: Any) -> BundleMessage:
    role, content = (
        (value.get("role"), value.get("content", "")) if isinstance(value, dict) else (None, None)
    )
    if not isinstance(role, str) or not isinstance(content, str):
        raise BlobDamaged("a message of the model has no role or no text")
    return BundleMessage(role, content)
