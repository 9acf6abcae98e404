"""Bundles: what is read from a store's layers, and what damage says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.bundle import BundleMessage, model_header, read_bundle
from registry.errors import BlobDamaged, BlobMissing, DigestMismatch, InvalidGguf
from registry.manifest import (
    CONFIG_TYPE,
    LICENSE_TYPE,
    MESSAGES_TYPE,
    MODEL_TYPE,
    PARAMS_TYPE,
    PROMPT_TYPE,
    SYSTEM_TYPE,
    TEMPLATE_TYPE,
    Descriptor,
    Manifest,
)
from registry.names import Name
from registry.store import Store, StoredModel
from tests.gguf_files import echo_file, llama_file

NAME = Name.parse("m")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


def install(store: Store, *layers: tuple[str, bytes], config: bytes = b"{}") -> StoredModel:
    written = []
    for media_type, content in ((CONFIG_TYPE, config), *layers):
        with store.blob_writer() as writer:
            writer.write(content)
            digest, size = writer.commit()
        written.append(Descriptor(media_type, digest, size))
    return store.put_manifest(NAME, Manifest(written[0], tuple(written[1:])))


def test_layers_become_fields(store: Store) -> None:
    stored = install(
        store,
        (MODEL_TYPE, llama_file()),
        (SYSTEM_TYPE, "Sei kürz.".encode()),
        (TEMPLATE_TYPE, b"T"),
        (PARAMS_TYPE, b'{"stop":["a"],"top_k":1}'),
        (MESSAGES_TYPE, json.dumps([{"role": "user", "content": "hi"}]).encode()),
        (LICENSE_TYPE, b"one"),
        (LICENSE_TYPE, b"two"),
    )
    bundle = read_bundle(store, stored)
    assert (bundle.name, bundle.digest) == (NAME, stored.digest)
    assert (bundle.system, bundle.template) == ("Sei kürz.", "T")
    assert bundle.parameters == {"stop": ["a"], "top_k": 1}
    assert bundle.messages == (BundleMessage("user", "hi"),)
    assert bundle.licenses == ("one", "two")
    assert bundle.header.block_count == 2


def test_a_model_alone_has_nothing_else(store: Store) -> None:
    bundle = read_bundle(store, install(store, (MODEL_TYPE, echo_file())))
    assert (bundle.system, bundle.template, bundle.parameters) == (None, None, {})
    assert (bundle.messages, bundle.licenses) == ((), ())


@pytest.mark.parametrize(
    "found",
    [
        7,
        [],
        {"type": "Q4_0", "text": "t", "before": None, "after": None},
        {"type": "Q4_0", "text": "t", "before": {"perplexity": "2", "tokens": 1}, "after": {}},
        {
            "type": 4,
            "text": "t",
            **{key: {"perplexity": 2, "tokens": 1} for key in ("before", "after")},
        },
        {
            "type": "Q",
            "text": "t",
            **{key: {"perplexity": 0, "tokens": 1} for key in ("before", "after")},
        },
    ],
)
def test_a_measurement_of_another_form_is_left_out(store: Store, found: object) -> None:
    config = json.dumps({"perplexity": found}).encode()
    stored = install(store, (MODEL_TYPE, echo_file()), config=config)
    assert read_bundle(store, stored).perplexity is None


def test_the_layer_that_old_stores_call_prompt_is_the_template(store: Store) -> None:
    stored = install(store, (MODEL_TYPE, echo_file()), (PROMPT_TYPE, b"old"))
    assert read_bundle(store, stored).template == "old"


@pytest.mark.parametrize(
    ("media_type", "content", "message"),
    [
        (PARAMS_TYPE, b"{", "is not JSON"),
        (PARAMS_TYPE, b"[]", "parameters is not a JSON object"),
        (PARAMS_TYPE, b"[" * 100_000, "is not JSON"),
        (MESSAGES_TYPE, b"{}", "messages is not a JSON list"),
        (MESSAGES_TYPE, b"[1]", "has no role or no text"),
        (MESSAGES_TYPE, b'[{"content":"x"}]', "has no role or no text"),
        (SYSTEM_TYPE, b"\xff", "is not UTF-8 text"),
        (MODEL_TYPE, b"second", "2 layers of weights, expected one"),
    ],
)
def test_a_damaged_layer_is_told(
    store: Store, media_type: str, content: bytes, message: str
) -> None:
    stored = install(store, (MODEL_TYPE, echo_file()), (media_type, content))
    with pytest.raises(BlobDamaged, match=message):
        read_bundle(store, stored)


def test_a_model_without_weights_is_told(store: Store) -> None:
    with pytest.raises(BlobDamaged, match="0 layers of weights"):
        read_bundle(store, install(store, (SYSTEM_TYPE, b"x")))


def test_weights_that_changed_on_disk_are_told(store: Store) -> None:
    stored = install(store, (MODEL_TYPE, llama_file()), (SYSTEM_TYPE, b"text"))
    weights, system = (store.blob_path(layer.digest) for layer in stored.manifest.layers)
    system.write_bytes(b"tex!")
    with pytest.raises(DigestMismatch):
        read_bundle(store, stored)
    weights.write_bytes(llama_file()[:-1])
    with pytest.raises(BlobDamaged, match=r"have \d+ bytes instead of \d+"):
        read_bundle(store, stored)
    weights.unlink()
    with pytest.raises(BlobMissing):
        read_bundle(store, stored)


def test_a_header_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(echo_file())
    first = model_header(path)
    assert model_header(path) is first
    path.write_bytes(llama_file())
    assert model_header(path).architecture == "llama"
    path.write_bytes(b"broken")
    with pytest.raises(InvalidGguf):
        model_header(path)
