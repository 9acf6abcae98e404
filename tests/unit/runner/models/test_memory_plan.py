from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from runner.errors import InsufficientMemory
from runner.models.memory_plan import (
    IDLE_TOKENS,
    MAX_POOL_TOKENS,
    MAX_SWAP_BYTES,
    MemoryBudget,
    MemoryPlan,
    ModelFiles,
    ModelShape,
    Wishes,
    compute_bytes,
    context_length,
    gib,
    gpu_layers,
    plan_memory,
    pool_tokens,
)

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


def shape(**fields: object) -> ModelShape:
    values = {name: getattr(QWEN_06B, name) for name in ModelShape.__dataclass_fields__}
    return ModelShape(**{**values, **fields})  # type: ignore[arg-type]


def plan(
    model: ModelShape = QWEN_06B, wishes: Wishes | None = None, free: int = 32 * GIB, **room: object
) -> MemoryPlan:
    return plan_memory(SOURCE, model, wishes or Wishes(), MemoryBudget(free, **room))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("num_ctx", "default", "trained", "expected"),
    [
        (None, None, 40_960, 4096),
        (None, None, 2048, 2048),
        (None, 8192, 40_960, 8192),
        (1000, 8192, 40_960, 1000),
        (99_999, None, 40_960, 40_960),
        (None, 99_999, 2048, 2048),
    ],
)
def test_the_context_is_the_first_wish_within_what_the_model_was_trained_for(
    num_ctx: int | None, default: int | None, trained: int, expected: int
) -> None:
    wishes = Wishes(num_ctx=num_ctx, default_context=default)
    assert context_length(shape(context_length=trained), wishes) == expected


@pytest.mark.parametrize(
    ("cache_type", "expected"),
    [("f16", 28 * 8 * 256 * 2), ("q8_0", 28 * 8 * 256 * 34 / 32), ("q4_0", 28 * 8 * 256 * 18 / 32)],
)
def test_the_cache_costs_its_type_for_every_layer(cache_type: str, expected: float) -> None:
    assert QWEN_06B.cache_bytes_per_token(cache_type) == expected


def test_layers_without_attention_cost_no_cache() -> None:
    hybrid = shape(heads_kv=(0, 8, 0, 8))
    assert hybrid.cache_bytes_per_token("f16") == 2 * 8 * 256 * 2


def test_the_price_is_the_sum_of_its_parts() -> None:
    price = plan().price
    assert price.total_bytes == price.weights_bytes + price.cache_bytes + price.compute_bytes
    assert price.weights_bytes == QWEN_06B.weights_bytes


def test_the_pool_holds_several_contexts_where_memory_allows() -> None:
    assert plan(free=64 * GIB).plan.pool_tokens == MAX_POOL_TOKENS
    assert plan(wishes=Wishes(num_parallel=2)).plan.pool_tokens == 8192


def test_the_pool_shrinks_to_one_context_before_a_load_is_refused() -> None:
    needed = plan(free=64 * GIB).price
    tight = needed.weights_bytes + needed.compute_bytes + (4096 * 28 * 8 * 256 * 2)
    assert plan(free=tight).plan.pool_tokens == 4096


def test_too_little_memory_is_refused_with_the_numbers() -> None:
    with pytest.raises(InsufficientMemory) as caught:
        plan(shape(weights_bytes=38 * GIB), free=21 * GIB)
    assert caught.value.details["available_bytes"] == 21 * GIB
    assert caught.value.details["needed_bytes"] > 38 * GIB
    for part in ("weights 38.0 GiB", "cache ", "compute ", "21.0 GiB are free", "num_ctx"):
        assert part in caught.value.message


def test_without_flash_attention_every_head_has_scores() -> None:
    with_flash = compute_bytes(QWEN_06B, 512, 4096, None)
    assert compute_bytes(QWEN_06B, 512, 4096, False) > with_flash + 4 * 512 * 16 * 4000


@pytest.mark.parametrize(
    ("num_gpu", "gpu_bytes", "expected"),
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
    num_gpu: int | None, gpu_bytes: tuple[int, ...], expected: int
) -> None:
    price = plan(free=64 * GIB).price
    assert gpu_layers(QWEN_06B, price, num_gpu, gpu_bytes) == expected


def test_what_lies_on_the_gpu_needs_no_memory_of_the_machine() -> None:
    on_gpu = plan(free=1 * GIB, gpu_bytes=(80 * GIB,))
    assert on_gpu.plan.gpu_layers == 29
    assert on_gpu.price.host_bytes < 200 << 20


def test_on_a_cpu_finished_sequences_mostly_wait_in_a_share_of_the_memory_left() -> None:
    small, large = plan(free=4 * GIB), plan(free=64 * GIB)
    for placement, free in ((small, 4 * GIB), (large, 64 * GIB)):
        swap = placement.plan.swap_bytes
        left = free - (placement.price.host_bytes - swap)
        assert placement.plan.idle_tokens == IDLE_TOKENS
        assert swap == placement.price.swap_bytes == min(left // 4, MAX_SWAP_BYTES)
    assert small.plan.swap_bytes < large.plan.swap_bytes == MAX_SWAP_BYTES


def test_a_swap_that_would_hold_too_little_is_left_out() -> None:
    wishes = Wishes(num_parallel=1)
    needed = plan(wishes=wishes).price.total_bytes
    placement = plan(wishes=wishes, free=needed + (100 << 20))
    assert (placement.plan.idle_tokens, placement.plan.swap_bytes) == (None, 0)


def test_no_swap_where_idle_tokens_slow_nobody_down() -> None:
    room = MemoryBudget(64 * GIB)
    for placement in (
        plan(gpu_bytes=(80 * GIB,)),
        plan(shape(heads_kv=(0,) * 28)),
        plan_memory(ModelFiles("/blob", "echo"), QWEN_06B, Wishes(), room),
        plan_memory(ModelFiles("/blob", "llamacpp", embedding=True), QWEN_06B, Wishes(), room),
    ):
        assert (placement.plan.idle_tokens, placement.plan.swap_bytes) == (None, 0)


def test_the_price_is_one_line_for_the_log() -> None:
    text = plan_memory(
        SOURCE, QWEN_06B, Wishes(num_parallel=1), MemoryBudget(64 * GIB)
    ).price.describe()
    assert text.startswith("at most 1.")
    assert "(weights 640 MiB + cache 448 MiB + compute " in text
    assert text.endswith("), 0 MiB of it on GPUs")


def test_torch_is_priced_with_its_cache_in_float32_and_its_libraries() -> None:
    room, wishes = MemoryBudget(64 * GIB, gpu_bytes=(80 * GIB,)), Wishes(num_parallel=4)
    ours, torch = (
        plan_memory(ModelFiles("/blob", backend), QWEN_06B, wishes, room)
        for backend in ("llamacpp", "torch")
    )
    assert torch.plan.backend == "torch"
    assert (torch.plan.kv_cache_type, torch.plan.gpu_layers) == ("f32", 0)
    assert torch.price.cache_bytes > 2 * ours.price.cache_bytes
    assert torch.price.compute_bytes > ours.price.compute_bytes
    assert (torch.plan.idle_tokens, torch.plan.swap_bytes) == (None, 0)


def test_a_cache_of_a_byte_on_torch_is_priced_with_a_scale_for_each_head() -> None:
    plans = {
        kind: plan_memory(
            ModelFiles("/blob", "torch"), QWEN_06B, Wishes(cache_type=kind), MemoryBudget(64 * GIB)
        )
        for kind in ("f16", "q8_0", "fp8")
    }
    assert {k: p.plan.kv_cache_type for k, p in plans.items()} == {
        "f16": "f32",
        "q8_0": "int8",
        "fp8": "fp8",
    }
    heads = sum(QWEN_06B.heads_kv)
    token = heads * (QWEN_06B.key_length + QWEN_06B.value_length) + 2 * 4 * heads
    assert QWEN_06B.cache_bytes_per_token("int8") == QWEN_06B.cache_bytes_per_token("fp8") == token
    assert 3 * plans["fp8"].price.cache_bytes < plans["f16"].price.cache_bytes


def test_on_a_gpu_torch_is_priced_by_its_weights_as_they_are_stored() -> None:
    stored = QWEN_06B.weights_bytes // 4
    shape, source = replace(QWEN_06B, stored_bytes=stored), ModelFiles("/blob", "torch")
    wishes = Wishes(num_parallel=1, default_context=1024)
    on_gpu = plan_memory(source, shape, wishes, MemoryBudget(64 * GIB, torch_gpu_bytes=(40 * GIB,)))
    assert on_gpu.price.weights_bytes == stored
    assert (on_gpu.plan.kv_cache_type, on_gpu.plan.gpu_layers) == ("bf16", shape.layers + 1)
    on_cpu = plan_memory(source, shape, wishes, MemoryBudget(64 * GIB))
    assert on_cpu.price.weights_bytes == QWEN_06B.weights_bytes
    full = plan_memory(source, shape, wishes, MemoryBudget(64 * GIB, torch_gpu_bytes=(1 << 20,)))
    assert full == on_cpu


def test_torch_takes_a_gpu_as_a_whole_or_not_at_all() -> None:
    for free, layers in ((40 * GIB, 29), (3 * GIB, 0)):
        room = MemoryBudget(64 * GIB, torch_gpu_bytes=(free,))
        assert (
            plan_memory(ModelFiles("/blob", "torch"), QWEN_06B, Wishes(), room).plan.gpu_layers
            == layers
        )


def test_the_echo_source_selects_the_echo_backend() -> None:
    placement = plan_memory(ModelFiles("/blob", "echo"), QWEN_06B, Wishes(), MemoryBudget(64 * GIB))
    assert placement.plan.backend == "echo"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 MiB"), (100 << 20, "100 MiB"), (GIB, "1.0 GiB"), (41 * GIB, "41.0 GiB")],
)
def test_sizes_read_well(size: int, text: str) -> None:
    assert gib(size) == text


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    context=st.integers(1, 200_000),
    parallel=st.integers(0, 300),
    per_token=st.just(0.0) | st.floats(1, 1e6),
    free=st.integers(0, 1 << 45),
)
def test_the_pool_always_holds_one_context_and_never_more_than_asked(
    context: int, parallel: int, per_token: float, free: int
) -> None:
    pool = pool_tokens(context, Wishes(num_parallel=parallel), per_token, free)
    assert context <= pool <= max(context, min(max(1, parallel) * context, MAX_POOL_TOKENS))


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    free=st.integers(0, 64 * GIB),
    weights=st.integers(1, 40 * GIB),
    num_ctx=st.integers(1, 100_000),
    gpu=st.lists(st.integers(0, 80 * GIB), max_size=2),
)
def test_a_plan_that_is_given_fits_and_a_refused_one_does_not(
    free: int, weights: int, num_ctx: int, gpu: list[int]
) -> None:
    model, wishes = shape(weights_bytes=weights), Wishes(num_ctx=num_ctx)
    gpus = tuple(gpu)
    least = plan_memory(SOURCE, model, replace(wishes, num_parallel=1), MemoryBudget(1 << 60, gpus))
    try:
        placement = plan_memory(SOURCE, model, wishes, MemoryBudget(free, gpus))
    except InsufficientMemory:
        event(f"refused, the least takes {gib(least.price.total_bytes)}")
        return
    assert placement.price.host_bytes <= free
    made = placement.plan
    assert made.batch_tokens <= made.pool_tokens
    assert made.context_length <= made.pool_tokens
    assert 1 <= (made.max_running or 0) <= made.max_sequences
    assert 0 <= made.gpu_layers <= model.layers + 1
