"""The memory of layers with an attention window, and when they hold that only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import pytest

from registry.formats.gguf import read_header
from runner.models.attention_window import attention_window
from runner.models.cache_size import CacheSize, window_cells
from runner.models.devices import Device
from runner.models.load_request import LoadRequest
from runner.models.memory_plan import MAX_POOL_TOKENS, MemoryBudget, MemoryPlan, plan_memory
from runner.models.model_files import ModelFiles
from runner.models.model_shape import ModelShape

GIB = 1 << 30
LAYER_BYTES = 2 * 256 * 2  # keys and values of one head in f16
GEMMA_270M = ModelShape(
    weights_bytes=240 << 20,
    context_length=32_768,
    vocabulary=262_144,
    embedding_length=640,
    feed_forward_length=2048,
    heads=4,
    heads_kv=(1,) * 18,
    key_length=256,
    value_length=256,
    window=512,
    window_layers=tuple(layer % 6 < 5 for layer in range(18)),
)


def plan(files: ModelFiles | None = None, *, free: int = 32 * GIB, **fields: object) -> MemoryPlan:
    devices = fields.pop("devices", ())
    budget = MemoryBudget(free, devices)  # type: ignore[arg-type]
    files = files or ModelFiles("/blob", "llamacpp")
    return plan_memory(files, GEMMA_270M, LoadRequest(**fields), budget)  # type: ignore[arg-type]


def test_a_long_context_costs_its_tokens_in_full_layers_only() -> None:
    made = plan(num_ctx=32_768, num_parallel=1)
    cells = 3 * 512 + 512  # of a sequence and two more, and a batch
    assert made.cache.window_cells == window_cells(512, 1, 512) == cells
    assert made.estimate.cache_bytes == LAYER_BYTES * (3 * 32_768 + 15 * cells)
    assert (made.load_plan.window_cache, made.load_plan.max_sequences) == (True, 3)


@pytest.mark.parametrize(
    ("num_parallel", "num_ctx", "small"),
    [(1, None, True), (16, None, True), (60, 4096, True), (62, 4096, False), (200, 4096, False)],
)
def test_a_window_for_each_sequence_must_be_less_than_the_cache_may_hold(
    num_parallel: int, num_ctx: int | None, small: bool
) -> None:
    made = plan(num_parallel=num_parallel, num_ctx=num_ctx)
    cells = 512 * (num_parallel + 2) + 512
    assert (cells < MAX_POOL_TOKENS) is small is made.load_plan.window_cache
    assert made.load_plan.max_sequences == (
        num_parallel + 2 if small else min(256, num_parallel * 2 + 8)
    )


def test_only_llama_cpp_and_generation_have_them() -> None:
    for files in (ModelFiles("/blob", "torch"), ModelFiles("/blob", "llamacpp", embedding=True)):
        assert not plan(files).load_plan.window_cache


def test_a_cache_grows_by_what_it_then_takes() -> None:
    made = plan(num_parallel=4)
    for tokens in (made.load_plan.pool_tokens, 3000, 20_000, 32_768):
        grown = made.with_pool(tokens)
        assert grown.estimate.cache_bytes == made.cache.size_bytes(tokens)
    assert made.grown(32_768, 1 << 40) == made.with_pool(32_768)


def test_memory_buys_more_context_than_before() -> None:
    tight = plan(free=1400 << 20, num_parallel=2)
    full = plan_memory(
        ModelFiles("/blob", "llamacpp"),
        replace(GEMMA_270M, window=0, window_layers=()),
        LoadRequest(num_parallel=2),
        MemoryBudget(1400 << 20),
    )
    assert tight.load_plan.max_pool_tokens == 32_768
    assert (full.load_plan.max_pool_tokens or 0) < 16_000


def test_what_is_affordable_takes_that_much() -> None:
    size = CacheSize(10.0, 50.0, 1000)
    for tokens in (0, 600, 1000, 3000):
        for more in (0, 59, 60, 24_000, 100_000):
            found = size.affordable(tokens, more)
            assert size.size_bytes(found) - size.size_bytes(tokens) <= more
            assert size.size_bytes(found + 1) - size.size_bytes(tokens) > more
    assert size.times(1.5).size_bytes(2000) == 1.5 * size.size_bytes(2000)


def test_layers_on_devices_count_for_what_they_hold() -> None:
    gpu = (Device("CUDA0", 24 * GIB, 24 * GIB),)
    made = plan(num_ctx=32_768, num_parallel=1, devices=gpu)
    last = plan(num_ctx=32_768, num_parallel=1, devices=gpu, num_gpu=2)
    weights = GEMMA_270M.weights_bytes * 1 // 19 * 2
    assert made.load_plan.gpu_layers == 19
    assert last.estimate.gpu_bytes - (last.estimate.compute_bytes - (160 << 20)) == pytest.approx(
        weights + LAYER_BYTES * 32_768, rel=1e-3
    ), "the last layer sees everything"


@pytest.mark.parametrize(
    ("architecture", "window", "pattern", "expected"),
    [
        ("gemma3", 512, None, (512, [True] * 5 + [False, True, True])),
        ("gemma3", 512, 4, (512, [True, True, True, False] * 2)),
        ("gemma3", 512, [True, False] * 4, (512, [True, False] * 4)),
        ("gemma2", None, None, (4096, [True, False] * 4)),
        ("gpt-oss", 128, None, (128, [True, False] * 4)),
        ("gemma3", None, None, (0, [])),
        ("gemma3", 0, None, (0, [])),
        ("phi3", 2047, None, (0, [])),
        ("llama4", 8192, None, (0, [])),
    ],
)
def test_the_layers_with_a_window_are_those_of_llama_cpp(
    tmp_path: Path,
    architecture: str,
    window: int | None,
    pattern: int | list[bool] | None,
    expected: tuple[int, list[bool]],
) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", architecture)
    writer.add_block_count(8)
    writer.add_context_length(4096)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_feed_forward_length(128)
    if window is not None:
        writer.add_sliding_window(window)
    if pattern is not None:
        writer.add_sliding_window_pattern(pattern)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    found, layers = attention_window(read_header(tmp_path / "model.gguf"))
    assert (found, list(layers)) == expected
