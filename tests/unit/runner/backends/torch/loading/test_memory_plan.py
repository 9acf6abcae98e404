"""The memory plan: blocks for what was expected, bytes of what will be there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from modelfile.convert.config import Config
from runner.backends.torch.config import create_model_config
from runner.backends.torch.loading import memory_plan as planning
from runner.backends.torch.loading.memory_plan import (
    SPARE_BLOCKS_PER_SEQUENCE,
    InPlaceWeights,
    StoredWeights,
    TorchMemoryPlan,
    dtype_for,
    plan_memory,
)
from runner.errors import ModelLoadFailed
from tests.unit.runner.backends.torch.checkpoints import LLAMA
from tests.unit.runner.backends.torch.conftest import ember_plan

CONFIG = create_model_config(Config(LLAMA))


def plan(quantized: bool = False, **changes: Any) -> TorchMemoryPlan:
    return plan_memory(CONFIG, ember_plan("torch", **changes), StoredWeights(1000, 600, quantized))


def test_the_pool_holds_what_was_promised_and_the_waste_of_each_sequence() -> None:
    found = plan(pool_tokens=1000, max_sequences=8)
    assert found.blocks == 63 + SPARE_BLOCKS_PER_SEQUENCE * 8
    assert found.block_bytes == 2 * 2 * 16 * 16 * 4  # both, layers, tokens, width, float32
    assert found.total_bytes == found.weights_bytes + found.cache_bytes + found.step_bytes


def test_the_pool_holds_at_least_one_context() -> None:
    assert plan(pool_tokens=1, context_length=100).blocks * 16 >= 100


def test_unpacked_weights_are_priced_as_they_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "supports_bfloat16", lambda: False)
    assert plan().weights_bytes == plan(quantized=True).weights_bytes == 4000
    monkeypatch.setattr(planning, "supports_bfloat16", lambda: True)
    assert plan().weights_bytes == 4000
    assert plan(quantized=True).narrow
    assert 2000 < plan(quantized=True).weights_bytes <= 4000


def test_weights_that_lie_in_the_file_are_priced_as_they_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "supports_bfloat16", lambda: False)

    def weights_bytes(**changes: Any) -> int:
        plan, in_place = ember_plan("torch", **changes), InPlaceWeights(900, 1000)
        return plan_memory(
            CONFIG, plan, StoredWeights(1000, 1400, quantized=True, in_place=in_place)
        ).weights_bytes

    monkeypatch.setattr(planning, "torch_kernels", lambda: object())
    assert weights_bytes() == 1000 + 4 * 100
    assert weights_bytes(native_kernels=False) == 4000
    monkeypatch.setattr(planning, "torch_kernels", lambda: None)
    assert weights_bytes() == 4000


@pytest.mark.parametrize("multiplies", [True, False])
def test_bfloat16_is_used_where_the_cpu_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, multiplies: bool
) -> None:
    monkeypatch.setattr(planning, "supports_bfloat16", lambda: multiplies)
    config = create_model_config(Config({**LLAMA, "torch_dtype": "bfloat16"}))
    assert dtype_for(config, "cpu") is (torch.bfloat16 if multiplies else torch.float32)
    assert dtype_for(config, "cuda") is torch.bfloat16


def test_a_gpu_computes_in_the_checkpoint_s_type_else_in_bfloat16() -> None:
    half = create_model_config(Config({**LLAMA, "torch_dtype": "float16"}))
    unnamed = create_model_config(Config({**LLAMA, "torch_dtype": None}))
    assert dtype_for(half, "cuda") is torch.float16
    assert dtype_for(half, "cpu") is torch.float32
    assert dtype_for(unnamed, "cuda") is torch.bfloat16


def test_a_gpu_that_is_too_small_is_told_before_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "device_for", lambda *_: "cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (100 << 20, 100 << 20))
    with pytest.raises(ModelLoadFailed, match="100 MiB is free; try a smaller num_ctx"):
        plan()


def test_the_plan_is_one_line_for_the_log() -> None:
    text = plan().describe()
    assert text.startswith("1 MiB on cpu in float32: weights 0 MiB + cache ")
    assert "blocks of 16 tokens" in text
