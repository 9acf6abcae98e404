"""A model in several processes is planned with the memory of all, on the GPUs that are there, or
refused with numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.models.load_request import LoadRequest
from runner.models.memory_plan import MemoryBudget, MemoryPlan, plan_memory
from runner.models.model_files import ModelFiles
from tests.unit.runner.models.test_memory_plan import GIB, QWEN_06B, gpus

FILES = ModelFiles("/blob", "torch")


def plan(
    free_bytes: tuple[int, ...] = (),
    files: ModelFiles = FILES,
    shape: Any = QWEN_06B,
    **request: Any,
) -> MemoryPlan:
    asked = LoadRequest(**{"num_parallel": 1, **request})
    return plan_memory(files, shape, asked, MemoryBudget(64 * GIB, torch_devices=gpus(*free_bytes)))


def test_each_process_has_buffers_and_libraries_and_all_have_the_weights_once() -> None:
    one, two = plan(), plan(tensor_parallel=2)
    assert two.load_plan.ranks == 2
    assert two.estimate.weights_bytes == one.estimate.weights_bytes
    assert two.estimate.cache_bytes == one.estimate.cache_bytes
    assert two.estimate.compute_bytes == 2 * one.estimate.compute_bytes


def test_heads_of_keys_that_several_processes_have_are_counted_as_often() -> None:
    few = replace(QWEN_06B, heads_kv=(2,) * QWEN_06B.layers)
    one, eight = plan(shape=few), plan(shape=few, tensor_parallel=8)
    assert eight.estimate.cache_bytes == pytest.approx(4 * one.estimate.cache_bytes, rel=0.01)


def test_a_share_of_the_model_has_to_fit_on_every_gpu() -> None:
    whole = plan((40 * GIB,)).estimate.total_bytes
    enough, few = whole // 2 + GIB, whole // 2 - (200 << 20)
    for there, layers in (((enough, enough), 29), ((40 * GIB, few), 0), ((few, few), 0)):
        found = plan(there, tensor_parallel=2)
        assert found.load_plan.gpu_layers == layers, there
    on_gpus = plan((enough, enough), tensor_parallel=2).estimate
    assert on_gpus.host_bytes < 2 * (200 << 20)


def test_the_named_gpus_are_used_and_no_others() -> None:
    there = (1 << 20, 40 * GIB, 40 * GIB)
    named = plan(there, tensor_parallel=2, devices=(1, 2))
    assert named.load_plan.gpu_layers == 29
    assert [device.name for device in named.estimate.devices] == ["CUDA1", "CUDA2"]
    assert plan(there, tensor_parallel=2).load_plan.gpu_layers == 0
    alone = plan(there, devices=(2,)).load_plan
    assert (alone.gpu_layers, alone.devices) == (29, (2,))
    assert plan((), tensor_parallel=2).load_plan.gpu_layers == 0


@pytest.mark.parametrize(
    ("request_", "count", "message"),
    [
        ({"tensor_parallel": 3}, 0, "tensor_parallel=3 does not divide the model's 16 attention"),
        ({"tensor_parallel": 16}, 8, "need 16 GPUs, and PyTorch can use 8 here"),
        ({"tensor_parallel": 16, "pipeline_parallel": 8}, 0, "are 128 processes, at most 64"),
        ({"pipeline_parallel": 29}, 0, "pipeline_parallel=29 is more than the model's 28 layers"),
        ({"tensor_parallel": 2, "devices": (0, 2)}, 2, "devices=0,2, but PyTorch can use 2 GPUs"),
        ({"tensor_parallel": 2, "devices": (1, 1)}, 2, "each of which can be named once"),
        ({"tensor_parallel": 2, "devices": (1,)}, 2, "devices=1 are 1 GPUs for 2 processes"),
        ({"devices": (0,), "num_gpu": 0}, 2, "devices=0 and num_gpu=0"),
    ],
)
def test_what_cannot_be_is_refused_with_numbers(
    request_: dict[str, Any], count: int, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        plan((40 * GIB,) * count, **request_)


def test_heads_of_keys_and_experts_have_to_divide_too() -> None:
    with pytest.raises(InvalidRequest, match="neither divides the model's 6 key and value heads"):
        plan(shape=replace(QWEN_06B, heads_kv=(6,) * 28), tensor_parallel=4)
    with pytest.raises(
        InvalidRequest, match="does not divide the model's 6 experts; try 1, 2 or 3"
    ):
        plan(shape=replace(QWEN_06B, experts=6), tensor_parallel=4)


@pytest.mark.parametrize("name", ["tensor_parallel", "pipeline_parallel"])
def test_other_backends_and_embedding_models_are_not_split(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{name}=2 is for the backend torch") as caught:
        plan(files=ModelFiles("/blob", "llamacpp"), **{name: 2})
    assert caught.value.details["param"] == name
    with pytest.raises(InvalidRequest, match="this one computes embeddings"):
        plan(files=ModelFiles("/blob", "torch", embedding=True), **{name: 2})
    adapted = ModelFiles("/blob", "torch", adapters=("/lora",))
    assert plan(files=adapted, quantize="int8", **{name: 2}).load_plan.ranks == 2
    with pytest.raises(InvalidRequest, match="main_gpu says which"):
        plan(files=ModelFiles("/blob", "llamacpp"), devices=(0,))
