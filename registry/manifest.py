"""Manifests: which blobs make a model. Docker's image manifest v2 with Ollama's media types.

Owns the typed parse and the serialisation. Knows nothing of files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from registry.digest import Digest
from registry.errors import InvalidDigest, InvalidManifest, shown

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
_IMAGE = "application/vnd.ollama.image"
MODEL_TYPE = f"{_IMAGE}.model"
PROJECTOR_TYPE = f"{_IMAGE}.projector"
ADAPTER_TYPE = f"{_IMAGE}.adapter"
TEMPLATE_TYPE = f"{_IMAGE}.template"
PROMPT_TYPE = f"{_IMAGE}.prompt"  # what old stores call the layer of the template
SYSTEM_TYPE = f"{_IMAGE}.system"
PARAMS_TYPE = f"{_IMAGE}.params"
MESSAGES_TYPE = f"{_IMAGE}.messages"
LICENSE_TYPE = f"{_IMAGE}.license"
DRAFT_TYPE = f"{_IMAGE}.draft"

MAX_MANIFEST_BYTES = 4 * 1024 * 1024
_MAX_LAYERS = 4096
_MAX_SIZE = 2**60


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One blob of a model. name and source ("from" on disk) are kept for others' manifests."""

    media_type: str
    digest: Digest
    size_bytes: int
    name: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A model: its config blob and its layers, in order."""

    config: Descriptor
    layers: tuple[Descriptor, ...]

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """Every blob that the model needs, each digest once."""
        return tuple({item.digest: item for item in (self.config, *self.layers)}.values())

    @property
    def size_bytes(self) -> int:
        """What the model takes on disk, were it alone."""
        return sum(item.size_bytes for item in self.blobs)

    @property
    def has_adapters(self) -> bool:
        """Whether LoRA adapters act on the weights."""
        return bool(self.of_type(ADAPTER_TYPE))

    def of_type(self, media_type: str) -> tuple[Descriptor, ...]:
        """The layers of a media type, in order."""
        return tuple(layer for layer in self.layers if layer.media_type == media_type)

    def to_bytes(self) -> bytes:
        """The manifest as JSON: the same manifest gives the same bytes."""
        value = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _layer_to_json(self.config),
            "layers": [_layer_to_json(layer) for layer in self.layers],
        }
        return json.dumps(value, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_bytes(cls, content: bytes) -> Manifest:
        """The manifest in content, every field checked. Raises InvalidManifest."""
        value = _object(_decode(content), "manifest")
        if value.get("schemaVersion") != 2:
            raise InvalidManifest(
                f"manifest: schemaVersion is {_brief(value.get('schemaVersion'))}, expected 2"
            )
        layers = value.get("layers")
        if not isinstance(layers, list) or len(layers) > _MAX_LAYERS:
            raise InvalidManifest(f"manifest: layers must be a list of at most {_MAX_LAYERS}")
        return cls(
            config=_layer_from_json(value.get("config"), "config"),
            layers=tuple(_layer_from_json(x, f"layers[{i}]") for i, x in enumerate(layers)),
        )


def _decode(content: bytes) -> Any:
    if not content:
        raise InvalidManifest("manifest: the file is empty")
    if len(content) > MAX_MANIFEST_BYTES:
        raise InvalidManifest(
            f"manifest: {len(content)} bytes, at most {MAX_MANIFEST_BYTES} are allowed"
        )
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidManifest(f"manifest: not JSON: {error}") from None


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidManifest(f"manifest: {field} must be an object, not {_brief(value)}")
    return value


def _layer_from_json(value: Any, field: str) -> Descriptor:
    item = _object(value, field)
    media_type, digest, size = item.get("mediaType"), item.get("digest"), item.get("size")
    if not isinstance(media_type, str) or not 0 < len(media_type) <= 255:
        raise InvalidManifest(f"manifest: {field}.mediaType is {_brief(media_type)}")
    if not isinstance(digest, str):
        raise InvalidManifest(f"manifest: {field}.digest is {_brief(digest)}")
    if type(size) is not int or not 0 <= size <= _MAX_SIZE:
        raise InvalidManifest(f"manifest: {field}.size is {_brief(size)}, expected 0 or more")
    try:
        parsed = Digest.parse(digest)
    except InvalidDigest as error:
        raise InvalidManifest(f"manifest: {field}: {error.message}") from None
    return Descriptor(
        media_type, parsed, size, _text(item, field, "name"), _text(item, field, "from")
    )


def _text(item: dict[str, Any], field: str, key: str) -> str | None:
    value = item.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidManifest(f"manifest: {field}.{key} is {_brief(value)}, expected text")
    return value or None


def _layer_to_json(layer: Descriptor) -> dict[str, Any]:
    value: dict[str, Any] = {
        "mediaType": layer.media_type,
        "digest": str(layer.digest),
        "size": layer.size_bytes,
    }
    if layer.source is not None:
        value["from"] = layer.source
    if layer.name is not None:
        value["name"] = layer.name
    return value


def _brief(value: Any) -> str:
    return "missing" if value is None else shown(str(value)[:200], 40)
