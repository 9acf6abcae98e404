from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from runner.errors import InsufficientMemory
from runner.models.cache_size import CacheSize
from runner.models.devices import Device
from runner.models.load_request import LoadRequest
from runner.models.memory_estimate import compute_bytes, gib
from runner.models.memory_plan import (
    IDLE_TOKENS,
    MAX_POOL_TOKENS,
    MAX_SWAP_BYTES,
    MemoryBudget,
    MemoryPlan,
    context_length,
    plan_memory,
    pool_tokens,
)
from runner.models.model_files import ModelFiles
from runner.models.model_shape import ModelShape
from tests.properties import examples

GIB = 1 << 30
SOURCE = ModelFiles("/blob", "llamacpp")
QWEN_06B = ModelShape(
    weights_bytes=640 << 20,
    context_length=40_960,
    vocabulary=151_936,
    embedding_length=1024,
    feed_forward_length=3072,
    heads=16,
    heads_kv=(8,) * 28,
    key_length=128,
    value_length=128,
)


def gpus(*free_bytes: int, **fields: object) -> tuple[Device, ...]:
    return tuple(
        Device(f"CUDA{number}", free, free, **fields)  # type: ignore[arg-type]
        for number, free in enumerate(free_bytes)
    )


def shape(**fields: object) -> ModelShape:
    values = {name: getattr(QWEN_06B, name) for name in ModelShape.__dataclass_fields__}
    return ModelShape(**{**values, **fields})  # type: ignore[arg-type]


def plan(
    model: ModelShape = QWEN_06B,
    request: LoadRequest | None = None,
    free: int = 32 * GIB,
    **budget: object,
) -> MemoryPlan:
    return plan_memory(SOURCE, model, request or LoadRequest(), MemoryBudget(free, **budget))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("num_ctx", "trained", "expected"),
    [
        (None, 40_960, 4096),
        (None, 2048, 2048),
        (8192, 40_960, 8192),
        (99_999, 40_960, 40_960),
        (99_999, 2048, 2048),
    ],
)
def test_the_context_is_the_requested_one_within_what_the_model_was_trained_for(
    num_ctx: int | None, trained: int, expected: int
) -> None:
    request = LoadRequest(num_ctx=num_ctx)
    assert context_length(shape(context_length=trained), request) == expected


@pytest.mark.parametrize(
    ("cache_type", "expected"),
    [("f16", 28 * 8 * 256 * 2), ("q8_0", 28 * 8 * 256 * 34 / 32), ("q4_0", 28 * 8 * 256 * 18 / 32)],
)
def test_the_cache_costs_its_type_for_every_layer(cache_type: str, expected: float) -> None:
    assert QWEN_06B.cache_bytes_per_token(cache_type) == expected


def test_layers_without_attention_cost_no_cache() -> None:
    hybrid = shape(heads_kv=(0, 8, 0, 8))
    assert hybrid.cache_bytes_per_token("f16") == 2 * 8 * 256 * 2


def test_the_estimate_is_the_sum_of_its_parts() -> None:
    estimate = plan().estimate
    assert (
        estimate.total_bytes
        == estimate.weights_bytes + estimate.cache_bytes + estimate.compute_bytes
    )
    assert estimate.weights_bytes == QWEN_06B.weights_bytes


def test_the_pool_holds_several_contexts_where_memory_allows() -> None:
    on_gpu = plan(free=64 * GIB, devices=gpus(80 * GIB)).load_plan
    assert (on_gpu.pool_tokens, on_gpu.max_pool_tokens) == (MAX_POOL_TOKENS, None)
    two = plan(request=LoadRequest(num_parallel=2), devices=gpus(80 * GIB)).load_plan
    assert two.pool_tokens == 8192


@pytest.mark.parametrize(
    ("trained", "fields", "expected"),
    [
        (40_960, {}, (8192, 40_960, 40_960)),
        (2048, {}, (8192, 32_768, 2048)),
        (2048, {"num_parallel": 1}, (2048, 2048, 2048)),
        (40_960, {"num_ctx": 20_000}, (20_000, 40_960, 40_960)),
        (40_960, {"num_ctx": 512, "num_parallel": 2}, (1024, 40_960, 40_960)),
    ],
)
def test_a_cache_starts_small_and_may_grow_to_the_longest_context(
    trained: int, fields: dict[str, int], expected: tuple[int, int, int]
) -> None:
    made = plan(shape(context_length=trained), LoadRequest(**fields), 64 * GIB).load_plan  # type: ignore[arg-type]
    assert (made.pool_tokens, made.max_pool_tokens, made.max_context_length) == expected


def test_a_cache_starts_beyond_where_positions_are_rotated_otherwise_or_stays_before() -> None:
    model = shape(context_length=131_072, original_context=16_384)
    assert plan(model, free=64 * GIB).load_plan.pool_tokens == 16_385
    tight = plan(model, free=6 * GIB).load_plan
    assert tight.pool_tokens < tight.max_pool_tokens == 16_384


@examples(50)
@given(
    free=st.integers(2 * GIB, 24 * GIB),
    left=st.integers(0, 16 * GIB),
    tokens=st.integers(1, 50_000),
    num_ctx=st.none() | st.integers(1, 50_000),
)
def test_a_cache_grows_only_within_the_memory_left(
    free: int, left: int, tokens: int, num_ctx: int | None
) -> None:
    """What the old one holds is in memory with the new one for a moment."""
    try:
        made = plan(request=LoadRequest(num_ctx=num_ctx), free=free)
    except InsufficientMemory:
        return
    most = made.load_plan.max_pool_tokens or 0
    assert made.with_pool(most).estimate.host_bytes <= max(free, made.estimate.host_bytes)
    grown = made.grown(tokens, left)
    if grown is None:
        least = made.with_pool(max(tokens, made.load_plan.pool_tokens))
        more = least.estimate.host_bytes - made.estimate.host_bytes
        assert tokens > most or more + made.estimate.cache_bytes > left - (1 << 20) or more == 0
        return
    assert max(tokens, made.load_plan.pool_tokens) <= grown.load_plan.pool_tokens <= most
    more = grown.estimate.host_bytes - made.estimate.host_bytes
    assert more + made.estimate.cache_bytes <= left


def test_the_pool_shrinks_to_one_context_before_a_load_is_refused() -> None:
    needed = plan(free=64 * GIB).estimate
    tight = needed.weights_bytes + needed.compute_bytes + (4096 * 28 * 8 * 256 * 2)
    assert plan(free=tight).load_plan.pool_tokens == 4096


def test_too_little_memory_is_refused_with_the_numbers() -> None:
    with pytest.raises(InsufficientMemory) as caught:
        plan(shape(weights_bytes=38 * GIB), free=21 * GIB)
    assert caught.value.details["available_bytes"] == 21 * GIB
    assert caught.value.details["needed_bytes"] > 38 * GIB
    for part in ("weights 38.0 GiB", "cache ", "compute ", "only 21.0 GiB is free", "num_ctx"):
        assert part in caught.value.message


def test_without_flash_attention_every_head_has_scores() -> None:
    with_flash = compute_bytes(QWEN_06B, 512, 4096, None)
    assert compute_bytes(QWEN_06B, 512, 4096, False) > with_flash + 4 * 512 * 16 * 4000


@pytest.mark.parametrize(
    ("num_gpu", "free_bytes", "expected"),
    [
        (None, (), 0),
        (99, (), 0),
        (0, (80 * GIB,), 0),
        (None, (80 * GIB,), 29),
        (10, (80 * GIB,), 10),
        (99, (80 * GIB,), 29),
        (None, (256 << 20,), 0),
    ],
)
def test_layers_go_to_the_gpu_as_they_fit_or_as_asked(
    num_gpu: int | None, free_bytes: tuple[int, ...], expected: int
) -> None:
    made = plan(request=LoadRequest(num_gpu=num_gpu), free=64 * GIB, devices=gpus(*free_bytes))
    assert made.load_plan.gpu_layers == expected


def test_what_lies_on_the_gpu_needs_no_memory_of_the_machine() -> None:
    on_gpu = plan(free=1 * GIB, devices=gpus(80 * GIB))
    assert on_gpu.load_plan.gpu_layers == 29
    assert on_gpu.estimate.host_bytes < 200 << 20


def test_on_a_cpu_finished_sequences_mostly_wait_in_a_share_of_the_memory_left() -> None:
    small, large = plan(free=4 * GIB), plan(free=64 * GIB)
    for made, free in ((small, 4 * GIB), (large, 64 * GIB)):
        swap = made.load_plan.swap_bytes
        left = free - (made.estimate.host_bytes - swap)
        assert made.load_plan.idle_tokens == IDLE_TOKENS
        assert swap == made.estimate.swap_bytes == min(left // 4, MAX_SWAP_BYTES)
    assert small.load_plan.swap_bytes < large.load_plan.swap_bytes == MAX_SWAP_BYTES


def test_a_swap_that_would_hold_too_little_is_left_out() -> None:
    request = LoadRequest(num_parallel=1)
    needed = plan(request=request).estimate.total_bytes
    made = plan(request=request, free=needed + (100 << 20))
    assert (made.load_plan.idle_tokens, made.load_plan.swap_bytes) == (None, 0)


def test_no_swap_where_idle_tokens_slow_nobody_down() -> None:
    budget = MemoryBudget(64 * GIB)
    for made in (
        plan(devices=gpus(80 * GIB)),
        plan(shape(heads_kv=(0,) * 28)),
        plan_memory(ModelFiles("/blob", "echo"), QWEN_06B, LoadRequest(), budget),
        plan_memory(
            ModelFiles("/blob", "llamacpp", embedding=True), QWEN_06B, LoadRequest(), budget
        ),
    ):
        assert (made.load_plan.idle_tokens, made.load_plan.swap_bytes) == (None, 0)


def test_the_estimate_is_one_line_for_the_log() -> None:
    text = plan_memory(
        SOURCE, QWEN_06B, LoadRequest(num_parallel=1), MemoryBudget(64 * GIB)
    ).estimate.describe()
    assert text.startswith("at most 1.")
    assert "(weights 640 MiB + cache 448 MiB + compute " in text
    assert text.endswith("), 0 MiB of it on GPUs")


def test_torch_is_estimated_with_its_cache_in_float32_and_its_libraries() -> None:
    budget, request = MemoryBudget(64 * GIB, devices=gpus(80 * GIB)), LoadRequest(num_parallel=4)
    ours, torch = (
        plan_memory(ModelFiles("/blob", backend), QWEN_06B, request, budget)
        for backend in ("llamacpp", "torch")
    )
    assert torch.load_plan.backend == "torch"
    assert (torch.load_plan.kv_cache_type, torch.load_plan.gpu_layers) == ("f32", 0)
    assert torch.estimate.cache_bytes > 2 * ours.estimate.cache_bytes
    assert torch.estimate.compute_bytes > ours.estimate.compute_bytes
    assert (torch.load_plan.idle_tokens, torch.load_plan.swap_bytes) == (None, 0)


def test_a_cache_of_a_byte_on_torch_is_estimated_with_a_scale_for_each_head() -> None:
    plans = {
        kind: plan_memory(
            ModelFiles("/blob", "torch"),
            QWEN_06B,
            LoadRequest(kv_cache_type=kind),
            MemoryBudget(64 * GIB),
        )
        for kind in ("f16", "q8_0", "fp8")
    }
    assert {k: p.load_plan.kv_cache_type for k, p in plans.items()} == {
        "f16": "f32",
        "q8_0": "int8",
        "fp8": "fp8",
    }
    heads = sum(QWEN_06B.heads_kv)
    token = heads * (QWEN_06B.key_length + QWEN_06B.value_length) + 2 * 4 * heads
    assert QWEN_06B.cache_bytes_per_token("int8") == QWEN_06B.cache_bytes_per_token("fp8") == token
    assert 3 * plans["fp8"].estimate.cache_bytes < plans["f16"].estimate.cache_bytes


def test_on_a_gpu_torch_is_estimated_by_its_weights_as_they_are_stored() -> None:
    stored = QWEN_06B.weights_bytes // 4
    shape, source = replace(QWEN_06B, stored_bytes=stored), ModelFiles("/blob", "torch")
    request = LoadRequest(num_parallel=1, num_ctx=1024)
    on_gpu = plan_memory(
        source, shape, request, MemoryBudget(64 * GIB, torch_devices=gpus(40 * GIB))
    )
    assert on_gpu.estimate.weights_bytes == stored
    assert (on_gpu.load_plan.kv_cache_type, on_gpu.load_plan.gpu_layers) == (
        "bf16",
        shape.layers + 1,
    )
    on_cpu = plan_memory(source, shape, request, MemoryBudget(64 * GIB))
    assert on_cpu.estimate.weights_bytes == QWEN_06B.weights_bytes
    full = plan_memory(source, shape, request, MemoryBudget(64 * GIB, torch_devices=gpus(1 << 20)))
    assert full == on_cpu


def test_torch_takes_a_gpu_as_a_whole_or_not_at_all() -> None:
    for free, layers in ((40 * GIB, 29), (3 * GIB, 0)):
        budget = MemoryBudget(64 * GIB, torch_devices=gpus(free))
        assert (
            plan_memory(
                ModelFiles("/blob", "torch"), QWEN_06B, LoadRequest(), budget
            ).load_plan.gpu_layers
            == layers
        )


def test_the_echo_source_selects_the_echo_backend() -> None:
    made = plan_memory(ModelFiles("/blob", "echo"), QWEN_06B, LoadRequest(), MemoryBudget(64 * GIB))
    assert made.load_plan.backend == "echo"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 MiB"), (100 << 20, "100 MiB"), (GIB, "1.0 GiB"), (41 * GIB, "41.0 GiB")],
)
def test_sizes_read_well(size: int, text: str) -> None:
    assert gib(size) == text


@examples(50)
@given(
    context=st.integers(1, 200_000),
    parallel=st.integers(0, 300),
    per_token=st.just(0.0) | st.floats(1, 1e6),
    free=st.integers(0, 1 << 45),
)
def test_the_pool_always_holds_one_context_and_never_more_than_asked(
    context: int, parallel: int, per_token: float, free: int
) -> None:
    pool = pool_tokens(context, parallel, CacheSize(per_token), free)
    assert context <= pool <= max(context, min(max(1, parallel) * context, MAX_POOL_TOKENS))


@examples(50)
@given(
    free=st.integers(0, 64 * GIB),
    weights=st.integers(1, 40 * GIB),
    num_ctx=st.integers(1, 100_000),
    gpu=st.lists(st.integers(0, 80 * GIB), max_size=2),
)
def test_a_plan_that_is_given_fits_and_a_refused_one_does_not(
    free: int, weights: int, num_ctx: int, gpu: list[int]
) -> None:
    model, request = shape(weights_bytes=weights), LoadRequest(num_ctx=num_ctx)
    there = gpus(*gpu)
    least = plan_memory(
        SOURCE, model, replace(request, num_parallel=1), MemoryBudget(1 << 60, there)
    )
    try:
        made = plan_memory(SOURCE, model, request, MemoryBudget(free, there))
    except InsufficientMemory:
        event(f"refused, the least takes {gib(least.estimate.total_bytes)}")
        return
    assert made.estimate.host_bytes <= free
    load_plan = made.load_plan
    assert load_plan.batch_tokens <= load_plan.pool_tokens
    assert load_plan.context_length <= load_plan.pool_tokens
    assert 1 <= (load_plan.max_running or 0) <= load_plan.max_sequences
    assert 0 <= load_plan.gpu_layers <= model.layers + 1
