"""Whether a model reads images, what is loaded for that, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from registry.bundle import Bundle, read_bundle
from registry.formats.gguf import types
from registry.manifest import (
    ADAPTER_TYPE,
    CONFIG_TYPE,
    MODEL_TYPE,
    PARAMS_TYPE,
    PROJECTOR_TYPE,
    Descriptor,
    Manifest,
)
from registry.names import Name
from registry.store import Store
from runner.models.capabilities import model_capabilities
from runner.models.load_request import LoadRequest
from runner.models.memory_plan import MemoryBudget, plan_memory
from runner.models.memory_requirement import memory_requirement
from runner.models.model_files import model_files
from runner.models.model_shape import model_shape
from runner.models.vision import (
    IMAGE_BYTES,
    ProjectorShape,
    media_unsupported,
    projector_of,
    projector_shape,
)
from runner.settings import Settings
from tests.gguf_files import (
    Tensor,
    Value,
    echo_file,
    gguf_file,
    llama_file,
    projector_file,
    projector_metadata,
    text,
    u32,
)
from tests.unit.runner.models.test_model_files import adapter_file

GIB = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


def bundle(store: Store, *layers: tuple[str, bytes]) -> Bundle:
    made = []
    for kind, content in ((CONFIG_TYPE, b"{}"), *layers):
        with store.blob_writer() as writer:
            writer.write(content)
            made.append(Descriptor(kind, *writer.commit()))
    manifest = Manifest(made[0], tuple(made[1:]))
    return read_bundle(store, store.put_manifest(Name.parse("m"), manifest))


def vision(metadata: Mapping[str, Value] | None = None, **figures: int) -> bytes:
    """A projector whose vision encoder has these figures. metadata: what else it has."""
    least = {
        "general.architecture": text("clip"),
        "clip.projector_type": text("pixtral"),
        "clip.has_vision_encoder": Value(types.BOOL, True),
    }
    own = {f"clip.vision.{key}": u32(value) for key, value in figures.items()}
    return gguf_file({**(metadata or least), **own}, [Tensor("mm.2.weight", (64, 64))])


def test_a_model_with_its_projector_sees_and_loads_it(store: Store) -> None:
    found = bundle(store, (MODEL_TYPE, llama_file()), (PROJECTOR_TYPE, projector_file()))
    assert found.projector is not None
    assert "vision" in model_capabilities(found).names()
    source = model_files(found)
    assert source.projector == str(found.projector.path)
    made = plan_memory(source, model_shape(found), LoadRequest(), MemoryBudget(8 * GIB))
    assert made.load_plan.projector == source.projector
    bare = bundle(store, (MODEL_TYPE, llama_file()))
    plain = plan_memory(model_files(bare), model_shape(bare), LoadRequest(), MemoryBudget(8 * GIB))
    weights = len(llama_file()) + len(projector_file())
    assert made.estimate.weights_bytes == weights
    assert made.estimate.compute_bytes - plain.estimate.compute_bytes >= IMAGE_BYTES
    assert plain.load_plan.projector is None


def test_adapters_stay_beside_a_projector(store: Store) -> None:
    layers = ((PROJECTOR_TYPE, projector_file()), (ADAPTER_TYPE, adapter_file()))
    found = bundle(store, (MODEL_TYPE, llama_file()), *layers)
    source = model_files(found, with_adapters=True)
    assert len(source.adapters) == 1
    assert source.projector is not None
    parts = (llama_file(), projector_file(), adapter_file())
    assert model_shape(found).all_weights_bytes == sum(len(part) for part in parts)


def test_the_need_of_memory_counts_the_projector(store: Store) -> None:
    metadata = projector_metadata() | {
        "clip.vision.feed_forward_length": u32(4 * 1152),
        "clip.vision.attention.head_count": u32(1),
    }
    seeing = bundle(
        store,
        (MODEL_TYPE, llama_file()),
        (PROJECTOR_TYPE, vision(metadata, image_size=896, patch_size=14, embedding_length=1152)),
    )
    blind = bundle(store, (MODEL_TYPE, llama_file()))
    needs = [memory_requirement(found, Settings()) for found in (seeing, blind)]
    assert needs[0] is not None
    assert needs[1] is not None
    rows = 4 * 4096 * (1 + 3 * 4) * 1152
    assert needs[0].compute_bytes - needs[1].compute_bytes == rows + IMAGE_BYTES


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (
            (),
            "m cannot process images: it has no projector. Use a model with the vision capability",
        ),
        (
            ((PROJECTOR_TYPE, projector_file(width=96)),),
            "m cannot process images: the projector produces",
        ),
        (((PROJECTOR_TYPE, b"no gguf"),), "it has no projector"),
        (
            ((PROJECTOR_TYPE, projector_file()), (PARAMS_TYPE, b'{"backend": "torch"}')),
            "cannot process images with the torch backend",
        ),
    ],
)
def test_a_model_that_cannot_see_says_why_and_answers_texts(
    store: Store, layers: tuple[tuple[str, bytes], ...], reason: str
) -> None:
    found = bundle(store, (MODEL_TYPE, llama_file()), *layers)
    assert (media_unsupported(found) or "").count(reason) == 1
    assert "vision" not in model_capabilities(found).names()
    assert projector_of(found) is None
    assert model_files(found).projector is None
    assert model_shape(found).projector is None


def test_the_backend_of_a_request_counts(store: Store) -> None:
    found = bundle(store, (MODEL_TYPE, llama_file()), (PROJECTOR_TYPE, projector_file()))
    assert media_unsupported(found) is None
    assert "torch" in (media_unsupported(found, backend="torch") or "")
    assert "without quantize" in (media_unsupported(found, quantize="int8") or "")
    assert media_unsupported(found, quantize="none") is None
    assert model_files(found, "torch").projector is None


def test_an_echo_model_can_claim_a_projector(store: Store) -> None:
    found = bundle(store, (MODEL_TYPE, echo_file()), (PROJECTOR_TYPE, projector_file()))
    assert "vision" in model_capabilities(found).names()
    assert model_files(found).projector is not None


@pytest.mark.parametrize(
    ("figures", "patches"),
    [
        ({"image_size": 336, "patch_size": 14}, 576),
        ({"image_size": 336, "patch_size": 14, "image_max_pixels": 1 << 20}, 5349),
        ({"image_size": 336, "patch_size": 0}, 4096),
        ({}, 4096),
    ],
)
def test_the_patches_of_a_picture_come_from_the_metadata(
    store: Store, figures: dict[str, int], patches: int
) -> None:
    found = bundle(store, (MODEL_TYPE, llama_file()), (PROJECTOR_TYPE, vision(**figures)))
    shape = projector_shape(found.projector)
    assert shape is not None
    assert shape.patches == patches


def test_attention_over_all_patches_costs_more_without_flash_attention() -> None:
    shape = ProjectorShape(0, 4096, 1152, 2304, 16)
    assert shape.compute_bytes(False) == (1132 << 20) + IMAGE_BYTES  # as llama.cpp tells it
    assert 90 << 20 < shape.compute_bytes(None) - IMAGE_BYTES < 140 << 20
