"""Weights quantized while they are loaded: the logits of what they stand for, by every path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.native.linear import torch_kernels
from runner.backends.torch.config import INT4_GROUP, LOAD_QUANTIZATIONS
from runner.backends.torch.layers.native_linear import NativeLinear
from runner.backends.torch.layers.packed_linear import OutlierLinear
from runner.backends.torch.loading.loader import build_model
from runner.backends.torch.loading.memory_plan import plan_memory
from runner.backends.torch.loading.rounding import is_rounded, round_map
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.weights import WeightPlacement
from runner.errors import ModelLoadFailed
from runner.types import LoadPlan
from tests.unit.runner.backends.torch.checkpoints import LLAMA, llama_tensors, write_checkpoint
from tests.unit.runner.backends.torch.loading.test_weights import logits_of

Tensor = Any
CONFIG = {**LLAMA, "hidden_size": 128, "intermediate_size": 192}
NATIVE = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(torch_kernels() is None, reason="no kernels")),
]


def tensors_with_outlier() -> dict[str, Tensor]:
    tensors = llama_tensors(CONFIG)
    tensors["model.layers.1.mlp.up_proj.weight"][:, 5] *= 30
    return tensors


def unpacked(tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """What the quantized weights stand for, as floats."""

    def worth(name: str, weight: Tensor) -> Tensor:
        stem = name.removesuffix(".weight")
        if weight.ndim < 2 or not is_rounded(stem):
            return weight
        packed, columns = round_map(stem, weight, kind)
        dense = packed.dense(torch.float32)
        dense[:, columns] = weight[:, columns]
        return dense

    return {name: worth(name, weight) for name, weight in tensors.items()}


@pytest.mark.parametrize("native", NATIVE)
@pytest.mark.parametrize("kind", LOAD_QUANTIZATIONS)
def test_logits_are_those_of_the_same_weights_unpacked(
    tmp_path: Path, kind: str, native: bool
) -> None:
    tensors = tensors_with_outlier()
    path = write_checkpoint(tmp_path / "floats", tensors, CONFIG)
    worth = write_checkpoint(tmp_path / "worth", unpacked(tensors, kind), CONFIG)
    found = logits_of(path, native=native, quantize=kind)
    expected, plain = logits_of(worth, native=False), logits_of(path, native=False)
    close = 5e-3 if kind == "int4" and native else 1e-5  # its minima are float16 there
    assert float((found - expected).norm() / expected.norm()) < close
    assert float((expected - plain).norm() / plain.norm()) > 2e-3


def test_fewer_bits_move_the_logits_further(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "floats", tensors_with_outlier(), CONFIG)
    plain = logits_of(path)
    moved = {
        kind: float((logits_of(path, quantize=kind) - plain).norm()) for kind in LOAD_QUANTIZATIONS
    }
    assert 0 < 2 * moved["int8"] < moved["fp8"] < moved["int4"]


@pytest.mark.skipif(torch_kernels() is None, reason="no kernels")
def test_a_column_that_sticks_out_stays_in_floats(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "floats", tensors_with_outlier(), CONFIG)
    place = WeightPlacement(torch.float32, torch.device("cpu"), 64, quantize="int8")
    model: Any = build_model(open_source(path), place)
    first, second = (layer.feed_forward for layer in model.layers)
    assert isinstance(first.gate_up, NativeLinear)
    assert isinstance(second.gate_up, OutlierLinear)
    (part,) = second.gate_up.parts
    assert (part.first, part.columns.tolist(), list(part.weight.shape)) == (192, [5], [192, 1])
    assert not isinstance(model.head, OutlierLinear)


def test_what_chooses_experts_and_what_makes_logits_stays_as_it_is() -> None:
    assert is_rounded("model.layers.3.mlp.experts.7.gate_proj")
    assert is_rounded("encoder.layer.0.attention.self.query")
    for name in (
        "lm_head",
        "model.embed_tokens",
        "model.layers.3.mlp.gate",
        "model.layers.0.router",
    ):
        assert not is_rounded(name)


@pytest.mark.parametrize("kind", LOAD_QUANTIZATIONS)
def test_weights_that_are_no_numbers_are_named(tmp_path: Path, kind: str) -> None:
    tensors = llama_tensors(CONFIG)
    tensors["model.layers.1.self_attn.o_proj.weight"][3, 4] = math.nan
    path = write_checkpoint(tmp_path / "nan", tensors, CONFIG)
    with pytest.raises(
        ModelLoadFailed, match=rf"layers\.1\.self_attn\.o_proj.*to {kind}.*infinite"
    ):
        logits_of(path, quantize=kind)


def test_a_width_that_groups_do_not_divide_is_refused(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "narrow", llama_tensors(), LLAMA)
    with pytest.raises(ModelLoadFailed, match=f"rows of 32 weights, no multiple of {INT4_GROUP}"):
        logits_of(path, quantize="int4")


def test_the_memory_plan_counts_the_maps_as_what_they_become(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "floats", llama_tensors(CONFIG), CONFIG)
    source = open_source(path)
    maps = source.weights.in_place.maps
    assert maps == 2 * (128 * 128 * 2 + 128 * 64 * 2 + 3 * 128 * 192)
    plan = LoadPlan(str(path), "torch", 64, 64, 4, native_kernels=False)

    def weights(quantize: str | None) -> int:
        wanted = LoadPlan(str(path), "torch", 64, 64, 4, native_kernels=False, quantize=quantize)
        return plan_memory(source.config, wanted, source.weights).weights_bytes

    assert plan.quantize is None
    assert weights(None) == 4 * source.weights.elements
    rest = 4 * (source.weights.elements - maps)
    assert weights("int4") == int(maps * 4.5 / 8) + rest
    assert weights("int8") == int(maps * 8.7 / 8) + rest
