"""Which files a bundle is loaded from, its adapters with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from registry.bundle import Bundle, read_bundle
from registry.errors import BlobDamaged
from registry.formats.gguf.header import CHECKPOINT
from registry.manifest import ADAPTER_TYPE, CONFIG_TYPE, MODEL_TYPE, Descriptor, Manifest
from registry.names import Name
from registry.store import Store
from runner.errors import ModelInvalid
from runner.models.lease import AskedModel
from runner.models.load_request import LoadRequest
from runner.models.memory_plan import MemoryBudget, plan_memory
from runner.models.model_files import model_files
from runner.models.model_shape import model_shape
from runner.settings import Settings
from tests.gguf_files import (
    Tensor,
    all_llama_tensors,
    echo_file,
    gguf_file,
    llama_file,
    llama_metadata,
    llama_tensors,
    text,
    u32,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "models")
    yield opened
    opened.close()


def adapter_file(architecture: str = "llama", rank: int = 2) -> bytes:
    """For the first matrix of llama_file."""
    target = next(tensor for tensor in llama_tensors() if "attn_q.weight" in tensor.name)
    wide, high = target.dimensions
    pair = [
        Tensor(f"{target.name}.lora_a", (wide, rank)),
        Tensor(f"{target.name}.lora_b", (rank, high)),
    ]
    facts = {
        "general.type": text("adapter"),
        "general.architecture": text(architecture),
        "adapter.type": text("lora"),
    }
    return gguf_file(facts, pair)


def bundle(store: Store, model: bytes, *adapters: bytes) -> Bundle:
    layers = []
    for kind, content in (
        (CONFIG_TYPE, b"{}"),
        (MODEL_TYPE, model),
        *((ADAPTER_TYPE, content) for content in adapters),
    ):
        with store.blob_writer() as writer:
            writer.write(content)
            layers.append(Descriptor(kind, *writer.commit()))
    manifest = Manifest(layers[0], tuple(layers[1:]))
    return read_bundle(store, store.put_manifest(Name.parse("m"), manifest))


def test_adapters_come_with_requests_or_are_there_from_the_start_and_counted(
    store: Store,
) -> None:
    found = bundle(store, llama_file(), adapter_file(), adapter_file(rank=3))
    assert model_files(found).adapters == ()
    assert AskedModel.of(found, {}, Settings()).shape.weights_bytes == len(llama_file())
    files = model_files(found, with_adapters=True)
    assert [Path(path) for path in files.adapters] == [a.path for a in found.adapters]
    sizes = len(llama_file()) + len(adapter_file()) + len(adapter_file(rank=3))
    assert model_shape(found).weights_bytes == sizes
    placed = plan_memory(
        files, model_shape(found), LoadRequest(lora_scale=0.5), MemoryBudget(8 << 30)
    )
    assert placed.load_plan.adapters == tuple((str(a.path), 0.5) for a in found.adapters)
    assert placed.estimate.weights_bytes == sizes


def test_one_worker_serves_models_that_differ_in_their_adapters(store: Store) -> None:
    asked = [bundle(store, llama_file(), *adapters) for adapters in ((), (adapter_file(),))]
    plain, adapted = (AskedModel.of(each, {"lora_scale": 0.5}, Settings()) for each in asked)
    assert plain.key == adapted.key
    apart = AskedModel.of(asked[1], {}, Settings(), adapters=True)
    assert apart.key != plain.key
    assert apart.shape.weights_bytes > plain.shape.weights_bytes


def test_an_adapter_of_another_model_is_refused_before_anything_is_loaded(store: Store) -> None:
    found = bundle(store, llama_file(), adapter_file("qwen2"))
    with pytest.raises(ModelInvalid, match="for another model: its architecture is qwen2"):
        model_files(found)


def test_torch_takes_adapters_and_no_draft_model(store: Store) -> None:
    found = bundle(store, llama_file(), adapter_file())
    files = model_files(found, "torch", with_adapters=True)
    assert [Path(path) for path in files.adapters] == [found.adapters[0].path]
    assert model_files(found, "torch").draft is None
    weights, added = found.header.parameter_count, found.adapters[0].header.parameter_count
    shape = model_shape(found, "torch")
    assert shape.weights_bytes == 4 * (weights + 3 * added)
    assert shape.stored_bytes == found.header.tensors_size_bytes + 2 * 3 * added


def test_an_adapter_cut_short_is_told(store: Store) -> None:
    found = bundle(store, llama_file(), adapter_file())
    found.adapters[0].path.write_bytes(adapter_file()[:-1])
    with pytest.raises(BlobDamaged, match=r"the adapters of m have \d+ bytes instead of \d+"):
        read_bundle(store, store.get(Name.parse("m")))


def test_the_backend_is_that_of_the_file_and_another_is_refused(store: Store) -> None:
    model = bundle(store, llama_file())
    assert model_files(model).backend == model_files(model, "auto").backend == "llamacpp"
    assert model_files(model, "llamacpp") == model_files(model)
    with pytest.raises(ModelInvalid, match="cannot be loaded by the backend echo"):
        model_files(model, "echo")
    assert model_files(model, "torch").backend == "torch"
    assert model_shape(model, "torch").weights_bytes == 4 * model.header.parameter_count
    with pytest.raises(ModelInvalid, match="cannot be loaded by the backend torch"):
        model_files(bundle(store, echo_file()), "torch")
    assert model_files(bundle(store, echo_file()), "echo").backend == "echo"


def test_a_quantized_checkpoint_that_was_kept_is_for_torch_alone(store: Store) -> None:
    facts = {
        **llama_metadata(),
        CHECKPOINT.config: text("{}"),
        CHECKPOINT.quantization: text("FP8"),
        CHECKPOINT.parameters: u32(1000),
    }
    found = bundle(store, gguf_file(facts, llama_tensors()))
    assert (found.header.quantization, found.header.parameter_count) == ("FP8", 1000)
    assert model_files(found).backend == model_files(found, "torch").backend == "torch"
    assert model_shape(found).weights_bytes == 4 * 1000
    with pytest.raises(ModelInvalid, match="cannot be loaded by the backend llamacpp"):
        model_files(found, "llamacpp")


def floats(**given: int) -> bytes:
    """A file whose weights are F16. given: other types, by the ends of names."""
    tensors = [
        replace(tensor, type=next((kind for end, kind in given.items() if end in tensor.name), 1))
        for tensor in all_llama_tensors()
    ]
    return gguf_file(llama_metadata(), tensors)


def test_weights_are_quantized_while_loading_where_they_are_floats(store: Store) -> None:
    found = bundle(store, floats())
    assert model_files(found, "torch", "int8").backend == "torch"
    maps = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96)
    others = found.header.parameter_count - maps
    for kind, bits in (("int8", 8.7), ("fp8", 8.2)):
        shape = model_shape(found, "torch", kind)
        assert shape.weights_bytes == int(maps * bits / 8) + 4 * others + 4 * 64 * 96
        assert shape.stored_bytes == int(maps * bits / 8) + 2 * others + 4 * 64 * 96
    request = LoadRequest(backend="torch", quantize="int8")
    plan = plan_memory(
        model_files(found, "torch", "int8"),
        model_shape(found, "torch", "int8"),
        request,
        MemoryBudget(8 << 30),
    )
    assert plan.load_plan.quantize == "int8"


@pytest.mark.parametrize(
    ("content", "backend", "kind", "reason"),
    [
        (llama_file(), "torch", "int8", r"quantized already \(Q8_0\).*hearth create -q"),
        (floats(ffn_down=8), "torch", "fp8", "quantized already"),
        (floats(), "torch", "int4", r"groups of 64 weights, and a row of blk\.0\.ffn_down.*has 96"),
        (floats(), "llamacpp", "int8", "by the backend llamacpp: only torch quantizes"),
        (echo_file(), "torch", "int8", "not a language model"),
    ],
)
def test_what_cannot_be_quantized_while_loading_is_refused_before_it(
    store: Store, content: bytes, backend: str, kind: str, reason: str
) -> None:
    with pytest.raises(ModelInvalid, match=f"m cannot be loaded with quantize {kind}.*{reason}"):
        model_files(bundle(store, content), backend, kind)
