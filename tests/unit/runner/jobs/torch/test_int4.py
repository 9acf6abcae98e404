"""Four bits by a text: less is lost than by rounding each weight, and files say what was meant."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.quant import int4
from modelfile.errors import ConvertError
from runner.backends.torch.architectures import model_class
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.weights import WeightPlacement
from runner.jobs.torch.awq import awq, column_scales
from runner.jobs.torch.calibrated_loader import CalibratedLoader
from runner.jobs.torch.calibration import Calibration, QuantizedMap, quantize_layers, scale_layer
from runner.jobs.torch.evaluation import chunk_step
from runner.jobs.torch.gptq import Int4Numbers, gptq, to_nearest
from runner.jobs.torch.hessian import InputStatistics
from runner.jobs.torch.int4_files import awq_tensors, gptq_tensors
from tests.properties import examples
from tests.unit.runner.backends.torch.checkpoints import LLAMA, llama_tensors, write_checkpoint

Tensor = Any
CONFIG = {**LLAMA, "hidden_size": 64, "intermediate_size": 96, "num_key_value_heads": 4}
GROUP = 32
cases = st.tuples(st.sampled_from([8, 24]), st.sampled_from([64, 192]), st.integers(0, 999))


def map_and_inputs(rows: int, columns: int, seed: int) -> tuple[Tensor, Tensor]:
    """Weights, and inputs that hang together and differ in size, as those of models do."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.eye(columns) + torch.randn(columns, columns, generator=generator) * 0.1
    sizes = (torch.rand(columns, generator=generator) * 3).exp()
    x = torch.randn(3 * columns, columns, generator=generator) @ mixed * sizes
    return torch.randn(rows, columns, generator=generator) * 0.02, x


def statistics(x: Tensor) -> InputStatistics:
    found = InputStatistics(torch.zeros(x.shape[1], x.shape[1]), torch.zeros(x.shape[1]))
    for part in x.split(50):
        found.add(part)
    return found


def lost(weight: Tensor, dense: Tensor, x: Tensor) -> float:
    """The squared error of the outputs of all inputs."""
    return float(((x @ (dense - weight).t()) ** 2).sum())


@examples(20)
@given(cases)
def test_gptq_loses_less_of_the_outputs_than_rounding(case: tuple[int, int, int]) -> None:
    weight, x = map_and_inputs(*case)
    found = gptq(weight, statistics(x), GROUP)
    assert lost(weight, found.dense, x) < 0.9 * lost(weight, to_nearest(weight, GROUP).dense, x)


@examples(13)
@given(cases)
def test_awq_loses_less_of_the_outputs_than_rounding(case: tuple[int, int, int]) -> None:
    weight, x = map_and_inputs(*case)
    inputs = statistics(x)
    scales = column_scales([weight], inputs, GROUP)
    found = awq(weight * scales, inputs.divided(scales), GROUP)
    rounded = lost(weight, to_nearest(weight, GROUP).dense, x)
    assert lost(weight, found.dense / scales, x) < 0.95 * rounded


def test_the_error_of_all_outputs_is_told_by_the_sums_of_products() -> None:
    weight, x = map_and_inputs(8, 64, 1)
    apart = to_nearest(weight, GROUP).dense - weight
    told = float(statistics(x).error(apart).sum())
    assert told == pytest.approx(lost(weight, weight + apart, x), rel=1e-4)


def test_a_column_that_nothing_comes_into_is_no_fault() -> None:
    weight, x = map_and_inputs(8, 64, 2)
    x[:, 5] = 0
    found = gptq(weight, statistics(x), GROUP)
    assert bool(found.dense.isfinite().all())
    assert not found.dense[:, 5].any()


@examples(13)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 999))
def test_files_hold_the_numbers_as_the_formats_have_them(rows: int, groups: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (8 * rows, GROUP * groups)
    numbers = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
    zeros = torch.randint(1, 16, (shape[0], groups), generator=generator, dtype=torch.uint8)
    scales = torch.rand(shape[0], groups, generator=generator).half().float()
    made = Int4Numbers(numbers, zeros, scales)
    stored = gptq_tensors(made)
    read = int4.from_gptq(*(stored[name] for name in ("qweight", "qzeros", "scales", "g_idx")))
    assert torch.equal(read.dense(torch.float32), made.dense)
    assert read.order is None
    stored = awq_tensors(made)
    read = int4.from_awq(*(stored[name] for name in ("qweight", "qzeros", "scales")))
    assert torch.equal(read.dense(torch.float32), made.dense)


def opened(path: Path) -> tuple[Any, CalibratedLoader]:
    source = open_source(path)
    place = WeightPlacement(torch.float32, torch.device("cpu"), 32, native=False)
    loader = CalibratedLoader(source.tensors, place)
    return model_class("llama")(source.config, loader), loader


def hidden(model: Any, path: Path, tokens: Tensor) -> Tensor:
    step = chunk_step(open_source(path).config.shape, len(tokens))
    return model.forward(tokens, step)


@pytest.mark.parametrize("heads_kv", [2, 4])
def test_scaling_columns_changes_nothing_of_what_a_layer_computes(
    tmp_path: Path, heads_kv: int
) -> None:
    config = {**CONFIG, "num_key_value_heads": heads_kv}
    path = write_checkpoint(tmp_path / "model", llama_tensors(config), config)
    with torch.inference_mode():
        model, loader = opened(path)
        tokens = torch.arange(32)
        plain = hidden(model, path, tokens)
        for one in loader.observed.maps:
            one.observe()
        hidden(model, path, tokens)
        before = model.layers[0].input_norm.weight.clone()
        for layer in model.layers:
            scale_layer(layer, GROUP)
        for one in loader.observed.maps:
            one.inputs = None
        found = hidden(model, path, tokens)
    assert not torch.allclose(model.layers[0].input_norm.weight, before, rtol=0.01)
    assert torch.allclose(found, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["gptq", "awq", "wanda", "magnitude"])
def test_weights_that_are_no_numbers_are_named(tmp_path: Path, method: Any) -> None:
    tensors = llama_tensors(CONFIG)
    tensors["model.layers.0.mlp.down_proj.weight"][1, 2] = math.inf
    path = write_checkpoint(tmp_path / "model", tensors, CONFIG)
    chunks = [] if method == "magnitude" else [torch.arange(32, dtype=torch.int32).numpy()]
    with torch.inference_mode():
        model, loader = opened(path)
        shape = open_source(path).config.shape
        layers = quantize_layers(
            model, loader.observed, shape, Calibration(method, GROUP, chunks), lambda *_: None
        )
        with pytest.raises(ConvertError, match=r"layers\.0\.mlp\.down_proj.*infinite"):
            list(layers)


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_layers_are_quantized_one_after_the_other_by_what_comes_in(
    tmp_path: Path, method: Any
) -> None:
    path = write_checkpoint(tmp_path / "model", llama_tensors(CONFIG), CONFIG)
    generator = torch.Generator().manual_seed(5)
    chunks = [
        torch.randint(0, 64, (32,), generator=generator, dtype=torch.int32).numpy()
        for _ in range(24)
    ]
    tokens = torch.from_numpy(chunks[0]).long()
    told: list[tuple[int, int]] = []
    with torch.inference_mode():
        model, loader = opened(path)
        shape = open_source(path).config.shape
        plain = hidden(model, path, tokens)
        wanted = Calibration(method, GROUP, chunks)
        done: list[list[QuantizedMap]] = []
        for maps in quantize_layers(
            model, loader.observed, shape, wanted, lambda n, of: told.append((n, of))
        ):
            # Those of later layers are there as floats meanwhile.
            done.append(maps)
        assert all(not one.weights for one in loader.observed.maps)
        for one in loader.observed.maps:
            dense = {found.name: found.weight.dense for maps in done for found in maps}
            one.weights = [dense[name] for name in one.names]
        moved = float((hidden(model, path, tokens) - plain).norm() / plain.norm())
        rounded, loader = opened(path)
        for one in loader.observed.maps:
            one.weights = [to_nearest(weight.float(), GROUP).dense for weight in one.weights]
        expected = float((hidden(rounded, path, tokens) - plain).norm() / plain.norm())
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert [len(maps) for maps in done] == [7, 7]
    assert 0.01 < moved < expected
