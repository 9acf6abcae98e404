"""Loading: one file, several, tied, GGUF; and what is refused, by its name."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.native.linear import torch_kernels
from runner.backends.torch.attention.block_pool import BlockPool
from runner.backends.torch.attention.paged import PagedAttentionStep, create_caches
from runner.backends.torch.batch import StepBatch, create_inputs, create_layout
from runner.backends.torch.loading.loader import build_model
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.weights import WeightPlacement
from runner.errors import ModelLoadFailed
from tests.unit.runner.backends.torch.checkpoints import (
    LLAMA,
    llama_tensors,
    write_checkpoint,
)
from tests.unit.runner.backends.torch.conftest import EMBER

Tensor = Any
TOKENS = (5, 9, 2, 33, 60, 1, 0, 17)


def logits_of(
    path: Path,
    *,
    packed: bool = False,
    dtype: Any = torch.float32,
    native: bool = True,
    quantize: str | None = None,
) -> Tensor:
    """The logits of all TOKENS [8, vocabulary] by the model at path."""
    source = open_source(path)
    shape = source.config.shape
    with torch.inference_mode():
        place = WeightPlacement(
            dtype, torch.device("cpu"), 64, packed, native=native, quantize=quantize
        )
        model = build_model(source, place)
        tokens = torch.tensor(TOKENS)
        positions = torch.arange(len(TOKENS))
        step = PagedAttentionStep(
            caches=create_caches(shape.layers, (2, 16, shape.heads_kv, shape.head), dtype, "cpu"),
            positions=positions,
            slots=positions + 16,
            block_tables=torch.tensor([[1]], dtype=torch.int32),
            query_starts=torch.tensor([0, len(TOKENS)], dtype=torch.int32),
            context_lengths=torch.tensor([len(TOKENS)], dtype=torch.int32),
            decodes=0,
        )
        return model.logits(model.forward(tokens, step))


def refusal(folder: Path, tensors: Mapping[str, Tensor], **config: Any) -> str:
    with pytest.raises(ModelLoadFailed) as refused:
        logits_of(write_checkpoint(folder, tensors, {**LLAMA, **config}))
    return refused.value.message


def test_shards_hold_what_one_file_holds(tmp_path: Path) -> None:
    tensors = llama_tensors()
    whole = logits_of(write_checkpoint(tmp_path / "one", tensors))
    parts = logits_of(write_checkpoint(tmp_path / "three", tensors, shards=3))
    assert whole.std() > 0.1
    assert torch.equal(whole, parts)


def test_tied_weights_are_the_embedding_again(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    apart = logits_of(write_checkpoint(tmp_path / "apart", tensors))
    del tensors["lm_head.weight"]
    tied = write_checkpoint(tmp_path / "tied", tensors, {**LLAMA, "tie_word_embeddings": True})
    assert torch.allclose(apart, logits_of(tied), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_close_to_float32(tmp_path: Path, dtype: Any) -> None:
    tensors = {name: tensor.to(dtype) for name, tensor in llama_tensors().items()}
    wide = {name: tensor.float() for name, tensor in tensors.items()}
    expected = logits_of(write_checkpoint(tmp_path / "wide", wide))
    folder = write_checkpoint(tmp_path / "narrow", tensors)
    assert torch.allclose(logits_of(folder), expected, atol=1e-5)
    error = (logits_of(folder, dtype=torch.bfloat16) - expected).norm() / expected.norm()
    assert error < 2e-2


def test_packed_rows_of_a_gguf_file_give_what_unpacked_ones_give() -> None:
    unpacked, packed = logits_of(EMBER, native=False), logits_of(EMBER, packed=True)
    assert unpacked.std() > 0.1
    assert torch.allclose(unpacked, packed, atol=1e-3)
    assert torch.allclose(unpacked, logits_of(EMBER), atol=1e-3)


@pytest.mark.skipif(torch_kernels() is None, reason="no kernels were compiled here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_are_used_where_they_lie_unless_they_are_wider_than_the_computation(
    tmp_path: Path, dtype: Any
) -> None:
    tensors = {name: tensor.to(dtype) for name, tensor in llama_tensors().items()}
    source = open_source(write_checkpoint(tmp_path / "m", tensors))
    for computed in (torch.float32, torch.bfloat16):
        model: Any = build_model(source, WeightPlacement(computed, torch.device("cpu"), 64))
        narrower = dtype.itemsize <= computed.itemsize
        expected = dtype if narrower else computed
        for layer in model.layers:
            for linear in (layer.attention.projections, layer.feed_forward.down):
                assert {weight.dtype for weight in linear.matrices.weights} == {expected}
        assert model.embedding.weight.dtype == expected


@pytest.mark.skipif(torch_kernels() is None, reason="no kernels were compiled here")
def test_copies_of_the_weights_give_what_the_file_s_pages_give(tmp_path: Path) -> None:
    source = open_source(write_checkpoint(tmp_path / "m", llama_tensors()))
    for mapped in (True, False):
        place = WeightPlacement(torch.float32, torch.device("cpu"), 64, mapped=mapped)
        model: Any = build_model(source, place)
        first = model.layers[0].feed_forward.down.matrices.weights[0]
        stored = source.tensors.read("model.layers.0.mlp.down_proj.weight")
        assert torch.equal(first, stored)
        with Path("/proc/self/maps").open() as maps:
            ranges = [line.split()[0] for line in maps if str(tmp_path) in line]
        edges = [[int(edge, 16) for edge in pages.split("-")] for pages in ranges]
        assert any(start <= first.data_ptr() < end for start, end in edges) == mapped


def test_a_gguf_file_gives_what_its_tensors_give_as_a_checkpoint(tmp_path: Path) -> None:
    source = open_source(EMBER)
    tensors = {name: source.tensors.read(name).clone() for name in source.tensors.names}
    folder = write_checkpoint(tmp_path / "hf", tensors, source.config.values.values)
    assert torch.allclose(logits_of(EMBER), logits_of(folder), atol=1e-5)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = llama_tensors()
    del tensors["model.layers.1.mlp.up_proj.weight"]
    message = refusal(tmp_path / "m", tensors)
    assert "has no tensor 'model.layers.1.mlp.up_proj.weight'" in message


def test_a_tensor_that_nothing_explains_is_named(tmp_path: Path) -> None:
    tensors = {**llama_tensors(), "model.layers.0.adapter.weight": torch.zeros(4)}
    assert "model.layers.0.adapter.weight" in refusal(tmp_path / "m", tensors)


def test_a_shape_that_contradicts_the_config_is_told_with_both(tmp_path: Path) -> None:
    message = refusal(tmp_path / "m", llama_tensors(), intermediate_size=40)
    assert "is [48, 32], but the config requires [40, 32]" in message


def test_a_config_that_contradicts_itself_is_refused_by_its_field(tmp_path: Path) -> None:
    assert "num_key_value_heads: 3" in refusal(
        tmp_path / "m", llama_tensors(), num_key_value_heads=3
    )


def test_an_unknown_architecture_is_named_with_the_known_ones(tmp_path: Path) -> None:
    message = refusal(tmp_path / "m", llama_tensors(), model_type="mamba")
    assert "mamba" in message
    assert "llama" in message


def test_an_unknown_activation_is_refused(tmp_path: Path) -> None:
    assert "hidden_act" in refusal(tmp_path / "m", llama_tensors(), hidden_act="relu")


def test_an_unknown_rope_is_refused(tmp_path: Path) -> None:
    scaling = {"rope_type": "spiral", "factor": 2.0}
    assert "spiral" in refusal(tmp_path / "m", llama_tensors(), rope_scaling=scaling)


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m", llama_tensors())
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": 1}))
    with pytest.raises(ModelLoadFailed, match="pickle"):
        open_source(folder)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"config\.json is missing"):
        open_source(tmp_path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m", llama_tensors())
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ModelLoadFailed, match="truncated"):
        open_source(folder)


def test_a_step_is_laid_out_with_single_tokens_first() -> None:
    from runner.backends.backend import Capacity, Row

    capacity = Capacity(64, 4, 64, 64, 100, 1, partial_share=True)
    pool = BlockPool(8, 16, 4, 64)
    rows = [Row(0, [1, 2, 3], 0), Row(2, [4], 0)]
    layout = create_layout(rows, capacity, pool.lengths)
    pool.extend(layout.sequences, layout.counts)
    tokens, step = StepBatch([], 16, "cpu", tables=True).fill(create_inputs(rows, layout, pool, ()))
    assert tokens.tolist() == [4, 1, 2, 3]
    assert step.positions.tolist() == [0, 0, 1, 2]
    assert (step.decodes, step.context_lengths.tolist()) == (1, [1, 3])
    first = int(pool.tables[0, 0]) * 16
    assert step.slots.tolist() == [int(pool.tables[2, 0]) * 16, first, first + 1, first + 2]
