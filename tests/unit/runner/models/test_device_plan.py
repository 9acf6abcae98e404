"""Layers go to devices by what fits there, experts stay out first, what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import InvalidRequest
from runner.models.device_plan import GPU_HEADROOM_BYTES
from runner.models.devices import Device
from runner.models.layer_sizes import LayerSizes, layer_sizes
from runner.models.load_request import LoadRequest
from runner.models.memory_estimate import PROCESS_BYTES, MemoryEstimate
from runner.models.memory_plan import MemoryBudget, MemoryPlan, plan_memory
from runner.models.model_files import ModelFiles
from runner.models.model_shape import ModelShape
from tests.properties import examples
from tests.unit.runner.models.test_memory_plan import GIB, QWEN_06B, gpus

FILES = ModelFiles("/blob", "llamacpp")
MIB = 1 << 20


def dense(layer: int = 512 * MIB, layers: int = 8, output: int = 256 * MIB) -> ModelShape:
    """A model whose weights lie in its layers, and an embedding of the output's size."""
    total = layers * layer + 2 * output
    return replace(
        QWEN_06B,
        weights_bytes=total,
        heads_kv=(2,) * layers,
        sizes=LayerSizes((layer,) * layers, (0,) * layers, output, 0, total),
    )


def mixture() -> ModelShape:
    """Seven eighths of each layer are experts; the first layer has none."""
    shape = dense(layer=GIB)
    assert shape.sizes is not None
    experts = (0, *(7 * GIB // 8,) * 7)
    return replace(shape, experts=64, sizes=replace(shape.sizes, experts=experts))


def plan(
    devices: tuple[Device, ...], shape: ModelShape | None = None, free: int = 64 * GIB, **asked: Any
) -> MemoryPlan:
    request = LoadRequest(**{"num_parallel": 1, "num_ctx": 512, **asked})
    return plan_memory(FILES, shape or dense(), request, MemoryBudget(free, devices))


def room(size: int, model: ModelShape | None = None) -> int:
    """The free memory of a device that can have so much of weights and cache."""
    estimate = plan(gpus(), model).estimate
    return size + GPU_HEADROOM_BYTES + estimate.compute_bytes - PROCESS_BYTES


def test_two_devices_share_the_layers_by_their_free_memory() -> None:
    made = plan(gpus(12 * GIB, 4 * GIB))
    assert made.load_plan.gpu_layers == 9
    assert made.load_plan.gpu_devices == ("CUDA0", "CUDA1")
    assert made.load_plan.tensor_split == (7.0, 2.0)
    first, second = made.estimate.devices
    assert first.size_bytes + second.size_bytes == made.estimate.gpu_bytes
    assert 2.5 < first.size_bytes / second.size_bytes < 4
    assert made.estimate.host_bytes < 2 * 256 * MIB  # the process, and the embedding


def test_every_device_has_buffers_of_a_step_of_its_own() -> None:
    one, two = plan(gpus(40 * GIB)), plan(gpus(20 * GIB, 20 * GIB))
    step = one.estimate.compute_bytes - PROCESS_BYTES
    assert two.estimate.gpu_bytes - one.estimate.gpu_bytes == step
    assert two.estimate.host_bytes == one.estimate.host_bytes


def test_the_cache_of_a_layer_lies_with_the_layer() -> None:
    whole = plan(gpus(40 * GIB))
    assert whole.estimate.gpu_bytes > whole.estimate.cache_bytes + 8 * 512 * MIB
    longer = plan(gpus(40 * GIB), num_ctx=8192)
    more = longer.estimate.cache_bytes - whole.estimate.cache_bytes
    assert more > 0
    assert longer.estimate.gpu_bytes - whole.estimate.gpu_bytes >= more


def test_layers_that_do_not_fit_stay_with_the_processor_the_first_ones_first() -> None:
    three = room(256 * MIB + 2 * 513 * MIB)  # the output and two layers
    made = plan(gpus(three))
    assert made.load_plan.gpu_layers == 3
    assert plan(gpus(three - 600 * MIB)).load_plan.gpu_layers == 1
    assert plan(gpus(room(100 * MIB))).load_plan.gpu_layers == 0
    assert plan(gpus(three, three)).load_plan.gpu_layers in (5, 6)


def test_experts_of_as_few_layers_as_necessary_stay_with_the_processor() -> None:
    shape = mixture()
    found = []
    for size in (9, 7, 3, 2):
        made = plan(gpus(room(size * GIB, shape)), shape)
        found.append((made.load_plan.gpu_layers, made.load_plan.cpu_moe_layers))
        assert made.estimate.gpu_bytes <= size * GIB + made.estimate.compute_bytes
    # None of them, those of some layers, all, and a whole layer too
    assert found == [(9, 0), (9, 3), (9, 8), (8, 8)]


def test_experts_stay_where_they_are_asked_to_stay() -> None:
    shape = mixture()
    made = plan(gpus(40 * GIB), shape, num_cpu_moe=3)
    assert made.load_plan.cpu_moe_layers == 3
    all_there = plan(gpus(40 * GIB), shape).estimate
    assert all_there.gpu_bytes - made.estimate.gpu_bytes == 2 * (7 * GIB // 8)
    assert made.estimate.host_bytes - all_there.host_bytes == 2 * (7 * GIB // 8)
    assert plan(gpus(40 * GIB), shape, num_cpu_moe=9999).load_plan.cpu_moe_layers == 8
    assert plan(gpus(40 * GIB), num_cpu_moe=3).load_plan.cpu_moe_layers == 0  # no experts


def test_one_gpu_is_used_where_that_is_asked_for() -> None:
    there = gpus(40 * GIB, 40 * GIB)
    for asked in ({"main_gpu": 1}, {"main_gpu": 1, "split_mode": "none"}):
        made = plan(there, **asked)
        assert (made.load_plan.gpu_devices, made.load_plan.split_mode) == (("CUDA1",), "none")
    assert plan(there, split_mode="none").load_plan.gpu_devices == ("CUDA0",)
    assert len(plan(there, main_gpu=1, split_mode="layer").load_plan.gpu_devices) == 2


def test_layers_are_shared_in_the_proportions_that_are_asked_for() -> None:
    there = gpus(40 * GIB, 40 * GIB)
    assert plan(there, tensor_split=(2.0, 1.0)).load_plan.tensor_split == (6.0, 3.0)
    only = plan(there, tensor_split=(0.0, 1.0)).load_plan
    assert (only.gpu_devices, only.tensor_split) == (("CUDA1",), (9.0,))
    few = plan(gpus(40 * GIB, room(600 * MIB)), tensor_split=(1.0, 1.0)).load_plan
    assert few.tensor_split in ((1.0, 1.0), (2.0, 1.0))  # more do not fit on the second


def test_rows_are_shared_by_the_free_memory_of_devices_that_can() -> None:
    able = gpus(12 * GIB, 4 * GIB, splits_rows=True)
    made = plan(able, split_mode="row")
    assert (made.load_plan.split_mode, made.load_plan.gpu_layers) == ("row", 9)
    first, second = made.load_plan.tensor_split
    assert 2.5 < first / second < 4
    with pytest.raises(InvalidRequest, match=r"split_mode=row is not possible on CUDA0, CUDA1: "):
        plan(gpus(12 * GIB, 4 * GIB), split_mode="row")


def test_layers_that_are_asked_for_go_there_whether_they_fit_or_not() -> None:
    assert plan(gpus(3 * GIB), num_gpu=99).load_plan.gpu_layers == 9
    assert plan(gpus(MIB), num_gpu=4).load_plan.gpu_layers == 4
    assert plan(gpus(40 * GIB), num_gpu=4).load_plan.gpu_layers == 4
    assert plan(gpus(40 * GIB), num_gpu=0).load_plan.gpu_layers == 0


def test_memory_that_a_device_shares_with_the_machine_is_counted_once() -> None:
    shared = gpus(64 * GIB, shared=True)
    made, apart = plan(shared, free=16 * GIB), plan(gpus(64 * GIB), free=16 * GIB)
    assert made.load_plan.gpu_layers == 9
    assert made.estimate.gpu_bytes == apart.estimate.gpu_bytes
    assert made.estimate.host_bytes == made.estimate.total_bytes
    assert apart.estimate.host_bytes < GIB
    assert plan(shared, free=5 * GIB).load_plan.gpu_layers < 9  # the machine has no more


@pytest.mark.parametrize(
    ("asked", "told", "name"),
    [
        ({"main_gpu": 2}, "main_gpu=2 .* can use 2 here: CUDA0 \\(RTX\\), CUDA1 \\(RTX\\)",
         "main_gpu"),
        ({"tensor_split": (1.0, 2.0, 3.0)}, "tensor_split=1,2,3 has 3 proportions.* use 2 here",
         "tensor_split"),
        ({"tensor_split": (0.0, 0.0)}, "tensor_split=0,0 leaves nothing", "tensor_split"),
        ({"split_mode": "row"}, "does not split matrices; use split_mode layer", "split_mode"),
    ],
)  # fmt: skip
def test_what_the_devices_cannot_do_is_refused_by_name(
    asked: dict[str, Any], told: str, name: str
) -> None:
    with pytest.raises(InvalidRequest, match=told) as caught:
        plan(gpus(40 * GIB, 40 * GIB, description="RTX"), **asked)
    assert caught.value.details["param"] == name
    assert plan((), **asked).load_plan.gpu_layers == 0  # no device: told, not refused
    assert plan(gpus(40 * GIB), num_gpu=0, **asked).load_plan.gpu_layers == 0


def test_an_output_that_is_the_embedding_is_there_twice() -> None:
    shape = dense()
    assert shape.sizes is not None
    tied = replace(shape, sizes=replace(shape.sizes, copied=256 * MIB))
    less, more = plan(gpus(40 * GIB), shape).estimate, plan(gpus(40 * GIB), tied).estimate
    assert more.weights_bytes - less.weights_bytes == 256 * MIB
    assert more.gpu_bytes == less.gpu_bytes


def test_sizes_are_read_from_the_names_of_tensors() -> None:
    from registry.formats.gguf.header import TensorInfo

    sizes = {
        "token_embd.weight": 100,
        "output_norm.weight": 1,
        "blk.0.attn_q.weight": 10,
        "blk.0.ffn_gate_inp.weight": 2,
        "blk.1.attn_q.weight": 10,
        "blk.1.ffn_up_exps.weight": 70,
        "blk.1.ffn_down_chexps.weight": 7,
        "blk.9.attn_q.weight": 5,
    }
    tensors = [TensorInfo(name, (size,), "I8", 0, size) for name, size in sizes.items()]
    assert layer_sizes(tensors, 2) == LayerSizes((12, 87), (0, 77), 101, 100, 205)
    own = [*tensors, TensorInfo("output.weight", (50,), "I8", 0, 50)]
    assert layer_sizes(own, 2) == LayerSizes((12, 87), (0, 77), 51, 0, 255)


@examples(50)
@given(
    free=st.lists(st.integers(0, 12 * GIB), min_size=1, max_size=4),
    experts=st.booleans(),
    num_gpu=st.none() | st.integers(0, 12),
)
def test_a_plan_never_fills_a_device_beyond_what_is_free_unless_told_to(
    free: list[int], experts: bool, num_gpu: int | None
) -> None:
    shape = mixture() if experts else dense()
    made = plan(gpus(*free), shape, num_gpu=num_gpu)
    load_plan, estimate = made.load_plan, made.estimate
    assert len(load_plan.gpu_devices) == len(load_plan.tensor_split) == len(estimate.devices)
    assert sum(load_plan.tensor_split) == load_plan.gpu_layers
    assert isinstance(estimate, MemoryEstimate)
    if num_gpu is None:
        by_name = {device.name: device.free_bytes for device in made.devices}
        for device in estimate.devices:
            assert device.size_bytes + GPU_HEADROOM_BYTES <= by_name[device.name]
    else:
        assert load_plan.gpu_layers == (min(num_gpu, 9) if any(free) else 0)
    assert estimate.host_bytes >= PROCESS_BYTES
