"""Weights that several processes quantize while they load them: the numbers of one process, and no
more memory than its share of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.quant.packed import PackedWeight
from runner.backends.torch.config import LOAD_QUANTIZATIONS
from runner.backends.torch.loading.loader import build_model
from runner.backends.torch.loading.rounding import is_rounded, round_map
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.weights import WeightPlacement
from runner.backends.torch.parallel.communication import Ranks
from runner.backends.torch.parallel.rank_layout import RankLayout
from runner.errors import ModelLoadFailed
from tests.conformance.logits.cases import CASES
from tests.conformance.logits.quantize import write_tensors
from tests.unit.runner.backends.torch.checkpoints import LLAMA, llama_tensors
from tests.unit.runner.backends.torch.models.running import GOLDEN, write_checkpoint
from tests.unit.runner.backends.torch.parallel.test_ranks import ALL, BOTH, TWO, assert_same
from tests.unit.runner.backends.torch.parallel.test_shared_tokens import StorageBytes

Tensor = Any
CONFIG: dict[str, Any] = {
    **LLAMA,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
STICKS_OUT = {  # columns of maps whose outputs or inputs are split, in parts of several ranks
    "model.layers.0.mlp.up_proj.weight": (5, 200),
    "model.layers.1.mlp.down_proj.weight": (7, 300, 301),
    "model.layers.1.self_attn.o_proj.weight": (255,),
}

# Of 4 and 2 heads, in a model of 64 values
HEADS_OF_64: dict[str, tuple[int, ...]] = {
    "q_proj.weight": (256, 64),
    "q_proj.bias": (256,),
    "o_proj.weight": (64, 256),
    **{f"{name}_proj.weight": (128, 64) for name in "kv"},
    **{f"{name}_proj.bias": (128,) for name in "kv"},
    **{f"{name}_norm.weight": (64,) for name in "qk"},
}


def write_llama(folder: Path, config: Mapping[str, Any] = CONFIG) -> dict[str, Tensor]:
    """A checkpoint with columns that stick out; its tensors."""
    tensors = llama_tensors(config)
    for name, columns in STICKS_OUT.items():
        tensors[name][:, list(columns)] *= 30
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder / "model.safetensors", tensors)
    return tensors


def unpacked(packed: PackedWeight, columns: Tensor, weight: Tensor) -> Tensor:
    """What a quantized map stands for, with what stays floats."""
    dense = packed.dense(torch.float32)
    assert not dense[:, columns].any()
    dense[:, columns] = weight[:, columns]
    return dense


@pytest.mark.parametrize("kind", LOAD_QUANTIZATIONS)
def test_ranks_have_the_numbers_that_one_process_has(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.backends.torch.loading.split_source._PIECE_WEIGHTS", 1000)
    tensors, source = write_llama(tmp_path), open_source(tmp_path)
    parts = [source.part(RankLayout(4, 1, rank), kind).tensors for rank in range(4)]
    apart = 0
    for name, weight in tensors.items():
        stem = name.removesuffix(".weight")
        if weight.ndim < 2 or not is_rounded(stem):
            continue
        packed, columns = round_map(stem, weight, kind)
        assert set(columns.tolist()) == set(STICKS_OUT.get(name, ()) if kind == "int8" else ())
        found = []
        for part in parts:
            own = part.read(name).clone()
            found.append(unpacked(*round_map(stem, own, kind, part.part(name)), own))
            apart += not torch.equal(found[-1], unpacked(*round_map(stem, own, kind), own))
        dimension = 1 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0
        assert torch.equal(torch.cat(found, dimension), unpacked(packed, columns, weight)), name
    # Of rows that are split, each rank's own largest number would give other ones
    assert (apart > 0) == (kind != "int4")


@pytest.mark.parametrize(
    ("kind", "name", "splits"),
    [
        ("int8", "llama3", (BOTH,)),
        *(
            pytest.param(kind, name, (TWO, *ALL), marks=pytest.mark.slow)
            for kind in LOAD_QUANTIZATIONS
            for name in ("llama3", "qwen3", "qwen3_moe_mixed", "gemma3_text", "gpt_oss")
        ),
    ],
)
def test_quantized_ranks_compute_what_one_process_does(
    kind: str, name: str, splits: tuple[Mapping[str, int], ...], tmp_path: Path
) -> None:
    write = write_wide_floats if kind == "int4" else write_checkpoint
    assert_same(write(tmp_path / "model", name), splits, quantize=kind)


def write_wide_floats(folder: Path, name: str) -> Path:
    """A case of floats whose feed-forward and heads have whole groups of int4 for four ranks."""
    inner = {96: 256, 192: 512, 32: 64}  # of feed-forwards and experts

    def shape(tensor: str, whole: tuple[int, ...]) -> tuple[int, ...]:
        if ".self_attn." in tensor:
            return HEADS_OF_64.get(tensor.partition(".self_attn.")[2], whole)
        return tuple(inner.get(size, size) if ".mlp." in tensor else size for size in whole)

    config = {"head_dim": 64, "intermediate_size": 256}
    if "moe_intermediate_size" in CASES[name]:
        config["moe_intermediate_size"] = 64
    shapes = {key: shape(key, tuple(whole)) for key, whole in GOLDEN[name]["tensors"].items()}
    return write_checkpoint(folder, name, shapes, **config)


def test_groups_that_would_be_cut_are_refused_before_they_are_read(tmp_path: Path) -> None:
    source = open_source(write_checkpoint(tmp_path / "model", "llama3"))
    message = "blocks of 64 values, and tensor_parallel=2 splits 96 values into parts of 48"
    with pytest.raises(ModelLoadFailed, match=message):
        source.part(RankLayout(2, 1, 1), "int4")
    for kind, layout in (("int8", RankLayout(2, 1, 1)), ("int4", RankLayout(1, 2, 1))):
        source.part(layout, kind)


@pytest.mark.parametrize(
    "split", [(2, 1), *(pytest.param(each, marks=pytest.mark.slow) for each in ((4, 1), (2, 2)))]
)
@pytest.mark.parametrize("kind", LOAD_QUANTIZATIONS)
def test_a_rank_never_has_more_tensors_than_its_share_and_a_twentieth(
    kind: str, split: tuple[int, int], tmp_path: Path
) -> None:
    config = {**CONFIG, "num_hidden_layers": 16, "num_key_value_heads": 8}
    write_llama(tmp_path, config)
    source, bits = open_source(tmp_path), 4.5 if kind == "int4" else 8
    layout, whole = RankLayout(*split, split[0] * split[1] - 1), 0.0
    for name in source.tensors.names:
        shape = source.tensors.shape(name)
        quantized = is_rounded(name.removesuffix(".weight")) and len(shape) > 1
        whole += prod(shape) * bits / 8 + 4 * shape[0] if quantized else 4 * prod(shape)
    ranks = Ranks(layout, object())  # type: ignore[arg-type]
    place = WeightPlacement(
        torch.float32, torch.device("cpu"), 64, ranks=ranks, quantize=kind, mapped=False
    )
    with torch.inference_mode(), StorageBytes() as storages:
        build_model(source.part(layout, kind), place)
    share = whole / layout.ranks
    floats = 4 * config["hidden_size"] * config["intermediate_size"] / layout.tensor  # of one map
    assert share <= storages.peak <= 1.05 * share + floats
