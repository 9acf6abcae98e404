"""Models that other tools have put into registries as OCI artifacts: those of Docker Model Runner
and of the CNCF's ModelPack, which was called CNAI before.

Owns which layers make a model. Sources: github.com/docker/model-runner (distribution/types) and
github.com/modelpack/model-spec (docs/spec.md). Sends no requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from registry.errors import InvalidManifest, RemoteMissing, shown
from registry.hosts.host import Role
from registry.hosts.selection.adapters import adapter_of
from registry.hosts.selection.checkpoint import checkpoint_of
from registry.hosts.selection.projectors import is_projector, projector_for, with_projector
from registry.hosts.selection.variants import RepositoryFile, Variant
from registry.manifest import Descriptor, Manifest

_CONFIGS = re.compile(
    r"application/vnd\.(docker\.ai\.model\.config\.v0\.[12]|(cncf|cnai)\.model\.config\.v1)\+json"
)
_ARTIFACTS = re.compile(r"application/vnd\.(cncf|cnai)\.model\.manifest\.v1\+json")
_DOCKER = "application/vnd.docker.ai."
_RAW = re.compile(
    r"application/vnd\.(cncf|cnai)\.model\.(weight|weight\.config|doc)(\.v1)?\.raw", re.ASCII
)
_GGUF = f"{_DOCKER}gguf.v3"
_PROJECTOR = f"{_DOCKER}mmproj"
_TEXTS: Mapping[str, Role] = {
    f"{_DOCKER}license": "license",
    f"{_DOCKER}chat.template.jinja": "template",
}
_GGUF_END = ".gguf"
_PROJECTOR_NAME = "mmproj.gguf"
_FILES = (f"{_DOCKER}safetensors", f"{_DOCKER}model.file")
_PATHS = ("org.cncf.model.filepath", "org.cnai.model.filepath", "org.opencontainers.image.title")


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A layer that is wanted, and the name that it has as a file."""

    title: str
    layer: Descriptor
    role: Role = "weights"


@dataclass(frozen=True, slots=True)
class Artifact:
    """The layers of a model, and what the user should hear of the others."""

    pieces: tuple[ArtifactFile, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Named:
    layer: Descriptor
    path: str | None


def read_artifact(content: bytes, manifest: Manifest) -> Artifact | None:
    """The model in an artifact whose manifest was read from content; None for a manifest of
    another kind. Raises InvalidManifest, RemoteMissing and RemoteRefused for an artifact that
    holds no GGUF and no safetensors in files of their own."""
    value = json.loads(content)
    kind = value.get("artifactType")
    known = _CONFIGS.fullmatch(manifest.config.media_type)
    if not known and not (isinstance(kind, str) and _ARTIFACTS.fullmatch(kind)):
        return None
    pairs = zip(manifest.layers, value["layers"], strict=True)
    layers = [_Named(layer, _path_of(given)) for layer, given in pairs]
    texts = [
        ArtifactFile(item.layer.digest.short, item.layer, _TEXTS[item.layer.media_type])
        for item in layers
        if item.layer.media_type in _TEXTS
    ]
    weights = _weights(layers)
    beside = _projector(layers) if weights[0].title.endswith(_GGUF_END) else None
    if beside is None:
        return Artifact((*texts, *weights))
    entry, layer = beside
    piece = ArtifactFile(_PROJECTOR_NAME, layer, "projector")
    return Artifact((*texts, *weights, piece), (with_projector(entry),))


def _projector(layers: list[_Named]) -> tuple[RepositoryFile, Descriptor] | None:
    """The best projector: a layer of Docker's type, or one by the name of its file."""
    found = {
        item.path or _PROJECTOR_NAME: item.layer
        for item in layers
        if item.layer.media_type == _PROJECTOR
        or (_is_file(item.layer) and is_projector(item.path or ""))
    }
    weights = next(item for item in layers if _is_gguf(item))
    model = Variant("", (RepositoryFile(weights.path or "", weights.layer.size_bytes, None),))
    entries = [RepositoryFile(path, layer.size_bytes, None) for path, layer in found.items()]
    best = projector_for(model, [model], entries)
    return None if best is None else (best, found[best.path])


def _weights(layers: list[_Named]) -> list[ArtifactFile]:
    ggufs = [item for item in layers if _is_gguf(item)]
    if ggufs:
        return _gguf_pieces(ggufs)
    files = {item.path: item.layer for item in layers if item.path and _is_file(item.layer)}
    if not files:
        kinds = ", ".join(sorted({shown(item.layer.media_type) for item in layers})[:4])
        raise RemoteMissing(f"the artifact contains no GGUF and no safetensors files: {kinds}")
    entries = [
        RepositoryFile(path, layer.size_bytes, layer.digest.hex) for path, layer in files.items()
    ]
    adapter = adapter_of("the artifact", entries)
    chosen = adapter or checkpoint_of("the artifact", entries)
    role: Role = "weights" if adapter is None else "adapter"
    return [ArtifactFile(entry.path, files[entry.path], role) for entry in chosen.entries]


def _gguf_pieces(ggufs: list[_Named]) -> list[ArtifactFile]:
    """The file, or all parts of one, each under a name of its own."""
    unique = {item.layer.digest: item for item in ggufs}
    count = len(unique)
    return [
        ArtifactFile(
            f"model-{number:05}-of-{count:05}.gguf" if count > 1 else "model.gguf", item.layer
        )
        for number, item in enumerate(unique.values(), 1)
    ]


def _is_gguf(item: _Named) -> bool:
    kind, path = item.layer.media_type, (item.path or "").lower()
    if "mmproj" in path:
        return False
    return kind == _GGUF or (path.endswith(_GGUF_END) and _is_file(item.layer))


def _is_file(layer: Descriptor) -> bool:
    """Whether the layer is one file as it is, and no archive."""
    return layer.media_type in _FILES or _RAW.fullmatch(layer.media_type) is not None


def _path_of(given: Mapping[str, Any]) -> str | None:
    """The name of the layer's file. Raises InvalidManifest for one that leaves its folder."""
    annotations = given.get("annotations")
    values = annotations if isinstance(annotations, dict) else {}
    path = next((values[key] for key in _PATHS if isinstance(values.get(key), str)), None)
    if path is None:
        return None
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or not path.isprintable() or len(path) > 512:
        raise InvalidManifest(f"manifest: a layer's file is called {shown(path)}")
    return str(PurePosixPath(path))
