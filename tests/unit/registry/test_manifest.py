"""Manifests: typed parse and stable bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.digest import Digest
from registry.errors import InvalidManifest
from registry.manifest import CONFIG_TYPE, LICENSE_TYPE, MODEL_TYPE, Descriptor, Manifest
from tests.properties import examples

CONFIG = Descriptor(CONFIG_TYPE, Digest.of(b"config"), 6)
MODEL = Descriptor(MODEL_TYPE, Digest.of(b"model"), 5)
MANIFEST = Manifest(CONFIG, (MODEL,))

LAYERS = st.builds(
    Descriptor,
    st.sampled_from((MODEL_TYPE, LICENSE_TYPE, "x/y")),
    st.binary(max_size=4).map(Digest.of),
    st.integers(0, 2**60),
    st.none() | st.text(min_size=1, max_size=5),
    st.none() | st.text(min_size=1, max_size=5),
)


@examples(40)
@given(st.builds(Manifest, LAYERS, st.lists(LAYERS, max_size=5).map(tuple)))
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    content = manifest.to_bytes()
    assert Manifest.from_bytes(content) == manifest
    assert Manifest.from_bytes(content).to_bytes() == content


def test_the_bytes_are_those_that_ollama_writes() -> None:
    assert MANIFEST.to_bytes().startswith(
        b'{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json",'
        b'"config":{"mediaType":"application/vnd.docker.container.image.v1+json","digest":"sha256:'
    )


def test_a_blob_used_twice_counts_once() -> None:
    manifest = Manifest(CONFIG, (MODEL, MODEL))
    assert manifest.size_bytes == 11
    assert manifest.of_type(MODEL_TYPE) == (MODEL, MODEL)


def _changed(path: tuple[str | int, ...], value: Any) -> bytes:
    document = json.loads(MANIFEST.to_bytes())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "must be an object"),
        (b"{}", "schemaVersion is missing"),
        (_changed(("schemaVersion",), 1), "schemaVersion is '1', expected 2"),
        (_changed(("layers",), None), "layers must be a list"),
        (_changed(("layers",), [0]), "layers[0] must be an object"),
        (_changed(("layers",), [{}] * 5000), "a list of at most 4096"),
        (_changed(("config",), None), "config must be an object"),
        (_changed(("config", "mediaType"), 3), "config.mediaType is '3'"),
        (_changed(("layers", 0, "digest"), None), "layers[0].digest is missing"),
        (_changed(("layers", 0, "digest"), "sha256:../../x"), "layers[0]: invalid digest"),
        (_changed(("layers", 0, "size"), -1), "layers[0].size is '-1'"),
        (_changed(("layers", 0, "size"), 2**61), "expected 0 or more"),
        (_changed(("layers", 0, "size"), 1.5), "layers[0].size is '1.5'"),
        (_changed(("layers", 0, "size"), True), "layers[0].size is 'True'"),
        (_changed(("layers", 0, "size"), float("nan")), "layers[0].size is 'nan'"),
        (_changed(("layers", 0, "name"), 1), "layers[0].name is '1'"),
        (b" " * (4 * 1024 * 1024 + 1), "at most 4194304 are allowed"),
    ],
)
def test_what_is_no_manifest_is_refused_by_field(content: bytes, message: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        Manifest.from_bytes(content)
    assert message in caught.value.message


@examples(60)
@given(st.integers(0, len(MANIFEST.to_bytes()) - 1), st.binary(max_size=3))
def test_a_damaged_manifest_is_read_or_refused(place: int, new: bytes) -> None:
    content = bytearray(MANIFEST.to_bytes())
    content[place : place + 1] = new
    try:
        manifest = Manifest.from_bytes(bytes(content))
    except InvalidManifest:
        return
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
