"""Whether a projector belongs to a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from modelfile.build import build
from modelfile.description import Description
from modelfile.errors import BuildError
from modelfile.projectors import check_projector, embedding_width, is_projector
from registry.bundle import read_bundle
from registry.digest import Digest
from registry.formats.gguf import GgufHeader, read_header, types
from registry.manifest import PROJECTOR_TYPE
from registry.names import Name
from registry.store import Store
from tests.gguf_files import (
    Tensor,
    Value,
    all_llama_tensors,
    gguf_file,
    llama_file,
    llama_metadata,
    projector_file,
    projector_metadata,
    text,
    u32,
)

NAME = Name.parse("tiny")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


def header(folder: Path, content: bytes) -> GgufHeader:
    path = folder / Digest.of(content).hex
    path.write_bytes(content)
    return read_header(path)


def upload(store: Store, content: bytes) -> Digest:
    with store.blob_writer() as writer:
        writer.write(content)
        return writer.commit()[0]


def projector(kind: str, *tensors: Tensor) -> bytes:
    return gguf_file(projector_metadata() | {"clip.projector_type": text(kind)}, tensors)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (projector_file(), True),
        (gguf_file({"general.architecture": text("clip")}), True),
        (llama_file(), False),
        (gguf_file({"general.architecture": text("clip"), "general.type": text("adapter")}), False),
    ],
)
def test_a_projector_is_known_by_its_header(tmp_path: Path, content: bytes, expected: bool) -> None:
    assert is_projector(header(tmp_path, content)) is expected


@pytest.mark.parametrize(
    ("content", "width"),
    [
        (projector("gemma3", Tensor("mm.input_projection.weight", (64, 32))), 64),
        (projector("idefics3", Tensor("mm.model.fc.weight", (32, 64))), 64),
        (projector("qwen2.5vl_merger", Tensor("mm.2.bias", (64,))), 64),
        (projector("mlp", Tensor("mm.2.weight", (32, 64))), 64),
        (projector("mlp", Tensor("mm.2.weight", (32, 7)), Tensor("mm.3.bias", (64,))), 64),
        (projector("resampler", Tensor("resampler.proj.weight", (64, 32))), 64),
        (projector("of_tomorrow", Tensor("mm.2.weight", (32, 7))), None),
        (projector("gemma3", Tensor("other", (64, 32))), None),
        (projector("mlp", Tensor("mm.2.weight", (32,))), None),
    ],
)
def test_each_kind_tells_its_width_by_its_own_tensor(
    tmp_path: Path, content: bytes, width: int | None
) -> None:
    assert embedding_width(header(tmp_path, content)) == width


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (projector_file(width=96), "embeddings of 96 values, but the model's have 64"),
        (llama_file(), r"is not a projector but a model \(llama\)"),
        (
            gguf_file(
                {
                    "general.architecture": text("clip"),
                    "clip.has_audio_encoder": Value(types.BOOL, True),
                }
            ),
            "has no tensors",
        ),
        (gguf_file({"general.architecture": text("clip")}), "has no vision encoder"),
        (gguf_file(projector_metadata()), "the projector has no tensors"),
        (
            gguf_file({"general.architecture": text("other"), "general.type": text("mmproj")}),
            "its architecture is other, expected clip",
        ),
    ],
)
def test_a_projector_for_another_model_is_refused_with_the_reason(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        check_projector(header(tmp_path, content), header(tmp_path, llama_file()))


def test_a_bundle_has_its_projector_as_a_layer_that_derived_models_keep(store: Store) -> None:
    content = projector_file()
    model, given = upload(store, llama_file()), upload(store, content)
    list(build(store, Description(NAME, files={"m.gguf": model}, projector=given)))
    bundle = read_bundle(store, store.get(NAME))
    assert bundle.projector is not None
    assert bundle.projector.path.read_bytes() == content
    (layer,) = store.get(NAME).manifest.of_type(PROJECTOR_TYPE)
    assert (layer.digest, layer.size_bytes) == (given, len(content))
    derived = Name.parse("derived")
    list(build(store, Description(derived, from_model=NAME, system="s")))
    assert store.get(derived).manifest.of_type(PROJECTOR_TYPE) == (layer,)


def test_a_new_projector_takes_the_place_of_the_old_one(store: Store) -> None:
    model = upload(store, llama_file())
    first, second = (upload(store, projector_file(salt=salt)) for salt in "ab")
    list(build(store, Description(NAME, files={"m.gguf": model}, projector=first)))
    list(build(store, Description(NAME, from_model=NAME, projector=second)))
    assert [x.digest for x in store.get(NAME).manifest.of_type(PROJECTOR_TYPE)] == [second]


def test_a_projector_that_does_not_fit_leaves_no_model(store: Store) -> None:
    model, given = upload(store, llama_file()), upload(store, projector_file(width=96))
    with pytest.raises(BuildError, match="made for another model"):
        list(build(store, Description(NAME, files={"m.gguf": model}, projector=given)))
    assert store.models() == []


def test_new_weights_are_checked_against_the_projector_that_stays(store: Store) -> None:
    base, given = upload(store, llama_file()), upload(store, projector_file())
    list(build(store, Description(NAME, files={"m.gguf": base}, projector=given)))
    metadata = llama_metadata() | {"llama.embedding_length": u32(128)}
    wider = upload(store, gguf_file(metadata, all_llama_tensors(width=128)))
    with pytest.raises(BuildError, match="embeddings of 64 values, but the model's have 128"):
        list(build(store, Description(NAME, from_model=NAME, weights=wider)))
    assert list(build(store, Description(NAME, from_model=NAME, weights=base)))[-1] == "success"
