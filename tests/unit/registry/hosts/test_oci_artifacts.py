"""Artifacts of other tools, by their manifests."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from registry.errors import InvalidManifest, RegistryError, RemoteMissing
from registry.hosts.oci_artifacts import Artifact, read_artifact
from registry.manifest import CONFIG_TYPE, Manifest

DOCKER = "application/vnd.docker.ai."
CNCF = "application/vnd.cncf.model."


def layer(kind: str, path: str | None = None, content: str = "") -> dict[str, Any]:
    digest = hashlib.sha256(f"{kind}{path}{content}".encode()).hexdigest()
    value: dict[str, Any] = {"mediaType": kind, "digest": f"sha256:{digest}", "size": 10}
    return value if path is None else value | {"annotations": {"org.cncf.model.filepath": path}}


def read(config: str, *layers: dict[str, Any], **fields: str) -> Artifact | None:
    value = {"schemaVersion": 2, "config": layer(config), "layers": list(layers), **fields}
    content = json.dumps(value).encode()
    return read_artifact(content, Manifest.from_bytes(content))


def pieces(config: str, *layers: dict[str, Any], **fields: str) -> dict[str, str]:
    found = read(config, *layers, **fields)
    assert found is not None
    return {piece.title: piece.layer.media_type for piece in found.pieces}


@pytest.mark.parametrize("version", ["v0.1", "v0.2"])
def test_the_gguf_of_docker_is_the_model_and_its_projector_comes_along(version: str) -> None:
    found = read(
        f"{DOCKER}model.config.{version}+json",
        layer(f"{DOCKER}gguf.v3"),
        layer(f"{DOCKER}mmproj"),
        layer(f"{DOCKER}license"),
        layer(f"{DOCKER}chat.template.jinja"),
    )
    assert found is not None
    roles = {piece.title: piece.role for piece in found.pieces[2:]}
    assert [piece.role for piece in found.pieces[:2]] == ["license", "template"]
    assert roles == {"model.gguf": "weights", "mmproj.gguf": "projector"}
    assert found.notes == ("with the multimodal projector mmproj.gguf (10 B)",)


def test_of_the_projectors_of_a_model_pack_the_best_one_is_taken() -> None:
    kind = f"{CNCF}weight.v1.raw"
    found = read(
        f"{CNCF}config.v1+json",
        layer(kind, "mmproj-m-F32.gguf"),
        layer(kind, "m-Q8_0.gguf"),
        layer(kind, "mmproj-m-F16.gguf"),
    )
    assert found is not None
    assert [piece.role for piece in found.pieces] == ["weights", "projector"]
    assert "mmproj-m-F16.gguf" in found.notes[0]


def test_a_projector_without_a_model_is_no_model() -> None:
    with pytest.raises(RemoteMissing):
        read(f"{DOCKER}model.config.v0.1+json", layer(f"{DOCKER}mmproj"))


def test_several_ggufs_are_the_parts_of_one() -> None:
    kind = f"{DOCKER}gguf.v3"
    parts = [layer(kind, content=text) for text in "abb"]
    assert list(pieces(f"{DOCKER}model.config.v0.1+json", *parts)) == [
        "model-00001-of-00002.gguf",
        "model-00002-of-00002.gguf",
    ]


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        (f"{CNCF}config.v1+json", {}),
        ("application/vnd.oci.empty.v1+json", {"artifactType": f"{CNCF}manifest.v1+json"}),
        ("application/vnd.cnai.model.config.v1+json", {}),
    ],
)
def test_a_model_pack_has_its_gguf_under_its_name(config: str, fields: dict[str, str]) -> None:
    weights = layer(f"{CNCF}weight.v1.raw", "m-Q8_0.gguf")
    readme = layer(f"{CNCF}doc.v1.raw", "README.md")
    assert pieces(config, readme, weights, **fields) == {"model.gguf": f"{CNCF}weight.v1.raw"}


def test_safetensors_as_files_make_a_checkpoint() -> None:
    config, kind = f"{DOCKER}model.config.v0.2+json", f"{DOCKER}model.file"
    assert list(
        pieces(
            config,
            layer(f"{DOCKER}safetensors", "model.safetensors"),
            layer(kind, "tokenizer.json"),
            layer(kind, "config.json"),
            layer(kind, "notes.txt"),
        )
    ) == ["config.json", "tokenizer.json", "model.safetensors"]


@pytest.mark.parametrize(
    "config", [CONFIG_TYPE, "application/vnd.oci.image.config.v1+json", "application/x"]
)
def test_another_manifest_is_no_artifact(config: str) -> None:
    assert read(config, layer(f"{DOCKER}gguf.v3")) is None


@pytest.mark.parametrize("kind", [f"{CNCF}weight.v1.tar", f"{CNCF}weight.v1.tar+gzip"])
def test_archives_are_refused_with_what_they_are(kind: str) -> None:
    with pytest.raises(RemoteMissing, match="contains no GGUF"):
        read(f"{CNCF}config.v1+json", layer(kind, "m.gguf"))


@pytest.mark.parametrize("path", ["../m.gguf", "/m.gguf", "a/../../m.gguf", "m\n.gguf", ""])
def test_a_file_that_leaves_its_folder_is_refused(path: str) -> None:
    with pytest.raises(InvalidManifest, match="a layer's file"):
        read(f"{CNCF}config.v1+json", layer(f"{CNCF}weight.v1.raw", path))


def test_annotations_of_any_kind_are_survived() -> None:
    for given in (5, [], None, {"org.cncf.model.filepath": 7}):
        weights = layer(f"{CNCF}weight.v1.raw") | {"annotations": given}
        with pytest.raises(RegistryError):
            read(f"{CNCF}config.v1+json", weights)
