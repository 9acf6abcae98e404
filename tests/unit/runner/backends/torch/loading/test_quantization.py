"""Quantized checkpoints: the logits of the same weights unpacked, whether they stay packed or not.

The weights are packed here by hand, after the formats' own descriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.native.linear import torch_kernels
from kernels.sparse.naive import compress
from runner.backends.torch.layers.native_linear import NativeLinear
from runner.backends.torch.loading.loader import build_model
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.weights import WeightPlacement
from runner.errors import ModelLoadFailed
from tests.unit.runner.backends.torch.checkpoints import LLAMA, llama_tensors, write_checkpoint
from tests.unit.runner.backends.torch.loading.test_weights import logits_of

Tensor = Any
Packed = tuple[dict[str, Tensor], Tensor]  # what is stored by its last name, and the weights
GROUP = 16
AWQ_PLACES = (0, 2, 4, 6, 1, 3, 5, 7)  # which column the nibbles of a word hold


def nibbles(shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(numbers [N, C], zeros and scales [N, groups], the weights [N, C] they stand for)."""
    rows, columns = shape
    numbers = torch.randint(0, 16, shape)
    zeros = torch.randint(1, 16, (rows, columns // GROUP))
    scales = (torch.rand(rows, columns // GROUP) + 0.5) / 20
    spread = [part.repeat_interleave(GROUP, 1) for part in (zeros, scales)]
    return numbers, zeros, scales, (numbers - spread[0]) * spread[1]


def words(numbers: Tensor, places: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """int32 [R, n / 8] of four-bit numbers [R, n]; nibble i of a word holds its places[i]."""
    groups = numbers.long().unflatten(1, (-1, 8))[..., list(places)]
    packed = (groups << torch.arange(0, 32, 4)).sum(-1)
    return packed.where(packed < 1 << 31, packed - (1 << 32)).to(torch.int32)


def gptq(shape: tuple[int, int]) -> Packed:
    numbers, zeros, scales, weight = nibbles(shape)
    stored = {"qweight": words(numbers).T, "qzeros": words(zeros.T - 1), "scales": scales.T}
    return {**stored, "g_idx": (torch.arange(shape[1]) // GROUP).int()}, weight


def gptq_by_activation(shape: tuple[int, int]) -> Packed:
    stored, weight = gptq(shape)
    order = torch.randperm(shape[1])
    numbers = torch.stack([(stored["qweight"].T >> shift) & 15 for shift in range(0, 32, 4)], -1)
    stored["qweight"] = words(numbers.flatten(1)[:, order]).T
    stored["g_idx"] = stored["g_idx"][order]
    return stored, weight[:, order]


def awq(shape: tuple[int, int]) -> Packed:
    numbers, zeros, scales, weight = nibbles(shape)
    stored = {
        "qweight": words(numbers.T, AWQ_PLACES),
        "qzeros": words(zeros.T, AWQ_PLACES),
        "scales": scales.T,
    }
    return stored, weight


def compressed_int4(shape: tuple[int, int]) -> Packed:
    numbers, _, scales, _ = nibbles(shape)
    weight = (numbers - 8) * scales.repeat_interleave(GROUP, 1)
    size = torch.tensor(shape)
    stored = {"weight_packed": words(numbers), "weight_scale": scales, "weight_shape": size}
    return stored, weight


def compressed_int8(shape: tuple[int, int]) -> Packed:
    numbers = torch.randint(-127, 128, shape).to(torch.int8)
    scales = (torch.rand(shape[0], 1) + 0.5) / 200
    return {"weight": numbers, "weight_scale": scales}, numbers * scales


def fp8_rows(shape: tuple[int, int]) -> Packed:
    numbers = (torch.randn(shape) * 100).to(torch.float8_e4m3fn)
    scales = (torch.rand(shape[0], 1) + 0.5) / 300
    return {"weight": numbers, "weight_scale": scales}, numbers.float() * scales


def fp8_blocks(shape: tuple[int, int]) -> Packed:
    numbers = (torch.randn(shape) * 100).to(torch.float8_e4m3fn)
    scale = torch.tensor([[1 / 300]])
    return {"weight": numbers, "weight_scale_inv": scale}, numbers.float() / 300


def fp8_whole(shape: tuple[int, int]) -> Packed:
    stored, weight = fp8_blocks(shape)
    return {"weight": stored["weight"], "weight_scale": torch.tensor(1 / 300)}, weight


def sparse(shape: tuple[int, int]) -> Packed:
    weight = (torch.randn(shape) * 0.3).half().float()
    weight *= (torch.rand(shape[0], shape[1] // 4, 4).argsort(-1) < 2).flatten(1)
    values, indices = compress(weight, weight != 0)
    return {"sparse_values": values.half(), "sparse_indices": indices}, weight


def scheme(**weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP}
METHODS: dict[str, tuple[Callable[[tuple[int, int]], Packed], dict[str, Any]]] = {
    "gptq": (gptq, {**GPTQ, "desc_act": False}),
    "gptq_desc_act": (gptq_by_activation, {**GPTQ, "desc_act": True}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}),
    "int4": (compressed_int4, scheme(num_bits=4, type="int", group_size=GROUP)),
    "int8": (compressed_int8, scheme(num_bits=8, type="int", strategy="channel")),
    "fp8_rows": (fp8_rows, scheme(num_bits=8, type="float", strategy="channel")),
    "fp8_blocks": (fp8_blocks, {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    "fp8": (fp8_whole, {"quant_method": "fp8"}),
    "sparse": (sparse, {"quant_method": "sparse-2:4"}),
}


def quantized(
    pack: Callable[[tuple[int, int]], Packed], config: dict[str, Any] = LLAMA
) -> tuple[dict[str, Tensor], ...]:
    """The tensors of a checkpoint with its projections packed, and with the same unpacked."""
    torch.manual_seed(11)
    stored, dense = {}, {}
    for name, tensor in llama_tensors(config).items():
        stored[name] = dense[name] = tensor
        if "_proj" in name:
            stem = name.removesuffix("weight")
            parts, dense[name] = pack(tuple(tensor.shape))
            del stored[name]
            stored |= {stem + part: value for part, value in parts.items()}
    return stored, dense


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_quantized_weights_count_as_the_numbers_they_stand_for(
    tmp_path: Path, method: str, packed: bool
) -> None:
    pack, config = METHODS[method]
    stored, dense = quantized(pack)
    folder = write_checkpoint(tmp_path / "q", stored, {**LLAMA, "quantization_config": config})
    expected = logits_of(write_checkpoint(tmp_path / "dense", dense))
    assert expected.std() > 0.1
    error = (logits_of(folder, packed=packed) - expected).norm() / expected.norm()
    assert error < 1e-4


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "quip"}, "'quip' is not supported; supported are fp8, gptq, awq"),
        ({**GPTQ, "bits": 8}, "bits '8' is not supported, only 4"),
        ({**GPTQ, "group_size": 7}, "group_size '7' is not supported, only a divisor of 32"),
        (scheme(num_bits=2, type="int"), "type int with 2 bits"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
    ],
)
def test_a_quantization_that_is_not_known_is_named(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    stored, _ = quantized(gptq)
    folder = write_checkpoint(tmp_path / "q", stored, {**LLAMA, "quantization_config": config})
    with pytest.raises(ModelLoadFailed, match=message):
        logits_of(folder)


def test_places_that_are_none_of_sparse_weights_are_refused(tmp_path: Path) -> None:
    stored, _ = quantized(sparse)
    stored["model.layers.1.mlp.up_proj.sparse_indices"][3, 2] = 0  # twice the first of four
    config = {**LLAMA, "quantization_config": {"quant_method": "sparse-2:4"}}
    folder = write_checkpoint(tmp_path / "q", stored, config)
    with pytest.raises(ModelLoadFailed, match=r"up_proj\.sparse_indices.*two places of each four"):
        logits_of(folder)


@pytest.mark.skipif(torch_kernels() is None, reason="no kernels")
def test_four_bits_stay_packed_on_a_cpu_where_their_groups_are_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.runner.backends.torch.loading.test_quantization.GROUP", 64)
    wide = {**LLAMA, "hidden_size": 128, "intermediate_size": 192}
    stored, dense = quantized(gptq, wide)
    config = {**wide, "quantization_config": {**GPTQ, "group_size": 64}}
    folder = write_checkpoint(tmp_path / "q", stored, config)
    model: Any = build_model(
        open_source(folder), WeightPlacement(torch.float32, torch.device("cpu"), 64)
    )
    maps = model.layers[0].feed_forward.gate_up
    assert isinstance(maps, NativeLinear)
    assert [list(part.shape) for part in maps.matrices.weights] == [[192, 128 // 64 * 36]] * 2
    expected = logits_of(write_checkpoint(tmp_path / "dense", dense, wide))
    error = (logits_of(folder) - expected).norm() / expected.norm()
    assert error < 5e-3  # minima are float16 there


def test_a_module_that_was_left_out_of_the_quantization_is_read_as_it_is(tmp_path: Path) -> None:
    stored, dense = quantized(gptq)
    name = "model.layers.1.mlp.down_proj"
    for part in ("qweight", "qzeros", "scales", "g_idx"):
        del stored[f"{name}.{part}"]
    stored[f"{name}.weight"] = dense[f"{name}.weight"]
    folder = write_checkpoint(tmp_path / "q", stored, {**LLAMA, "quantization_config": GPTQ})
    expected = logits_of(write_checkpoint(tmp_path / "dense", dense))
    assert torch.allclose(logits_of(folder, packed=True), expected, atol=1e-4)
