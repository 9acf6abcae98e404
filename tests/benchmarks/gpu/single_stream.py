"""One stream at a time: decode of a token, prefill of a long prompt, and the attention kernels."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from kernels import ops
from tests.benchmarks.gpu.loaded import load
from tests.benchmarks.gpu.machine import Machine, Target, seconds, wait
from tests.benchmarks.gpu.shapes import CONFIGS, matrix_weights, small

SHAPE = "llama-3.1-8b"
DECODE = {
    "bf16": Target("decode, one stream, 8B in bf16", 0.8, "copy bandwidth"),
    "fp8": Target("decode, one stream, 8B in fp8", 0.7, "copy bandwidth"),
    "int4": Target("decode, one stream, 8B in int4", 0.7, "copy bandwidth"),
}
PREFILL = Target("prefill of 8,192 tokens, 8B in bf16", 0.6, "matrix rate")
DECODE_KERNEL = Target("decode attention, 64 x 4,096", 0.75, "copy bandwidth")
PREFILL_KERNEL = Target("prefill attention, 8,192", 0.6, "torch's SDPA")
TARGETS = (*DECODE.values(), PREFILL, DECODE_KERNEL, PREFILL_KERNEL)
BLOCK, HEADS, KEY_HEADS, WIDTH = 64, 32, 8, 128


def decodes(machine: Machine) -> Iterator[str]:
    """Weights and cache that a token reads, over the time it takes."""
    prompt, count = (16, 4) if machine.small else (512, 256)
    for quantization, target in DECODE.items():
        model = load(
            small(CONFIGS[SHAPE]) if machine.small else CONFIGS[SHAPE],
            quantization,
            machine.device,
            context_length=2048,
            pool_tokens=2048,
            max_sequences=1,
            batch_tokens=512,
        )
        model.prefill(0, prompt, 512)
        model.decode(0, prompt, 4)  # captures the graph
        wait(machine.device)
        start_s = time.perf_counter()
        model.decode(0, prompt + 4, count)
        wait(machine.device)
        taken_s = (time.perf_counter() - start_s) / count
        read = model.computed_bytes + model.token_bytes * (prompt + 4 + count / 2)
        model.backend.close()
        figure = f"{taken_s * 1e3:.3f} ms a token, {read / taken_s / 1e9:.0f} GB/s"
        yield target.line(read / taken_s / machine.copy, figure)


def prefill(machine: Machine) -> Iterator[str]:
    """Products of a prompt's tokens with the weights and with one another, over the time."""
    tokens = 128 if machine.small else 8192
    values = small(CONFIGS[SHAPE]) if machine.small else CONFIGS[SHAPE]
    model = load(
        values,
        "bf16",
        machine.device,
        context_length=tokens + 16,
        pool_tokens=tokens + 16,
        max_sequences=1,
        batch_tokens=tokens,
    )

    def run() -> None:
        model.prefill(0, tokens, tokens)
        model.backend.release(0)

    taken_s = seconds(run, machine.device, 3)
    model.backend.close()
    width = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
    scores = 2.0 * values["num_attention_heads"] * width * tokens**2
    sums = 2.0 * matrix_weights(values) * tokens + scores * values["num_hidden_layers"]
    figure = f"{taken_s * 1e3:.1f} ms, {sums / taken_s / 1e12:.1f} TFLOP/s"
    yield PREFILL.line(sums / taken_s / machine.matrix, figure)


def kernels(machine: Machine) -> Iterator[str]:
    """The attention kernels by themselves."""
    sequences, context = (2, 128) if machine.small else (64, 4096)
    dtype, blocks = torch.bfloat16, context // BLOCK

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype, device=machine.device)

    shape = sequences * blocks, BLOCK, KEY_HEADS, WIDTH
    caches = normal(*shape), normal(*shape)
    tables = torch.randperm(sequences * blocks, device=machine.device).int().view(sequences, -1)
    lengths = torch.full((sequences,), context, dtype=torch.int32, device=machine.device)
    query, spec = normal(sequences, HEADS, WIDTH), ops.AttentionSpec(WIDTH**-0.5)
    taken_s = seconds(
        lambda: ops.decode_attention(query, caches, tables, lengths, spec),
        machine.device,
    )
    rate = 2 * caches[0].numel() * dtype.itemsize / taken_s
    yield DECODE_KERNEL.line(rate / machine.copy, f"{taken_s * 1e3:.3f} ms, {rate / 1e9:.0f} GB/s")
    tokens = 128 if machine.small else 8192
    shape = tokens // BLOCK, BLOCK, KEY_HEADS, WIDTH
    caches = normal(*shape), normal(*shape)
    table = torch.arange(tokens // BLOCK, device=machine.device).int()[None]
    rows, starts = normal(tokens, HEADS, WIDTH), torch.tensor([0, tokens], dtype=torch.int32)
    starts, length = starts.to(machine.device), starts[1:].to(machine.device)
    ours_s = seconds(
        lambda: ops.prefill_attention(rows, caches, table, starts, length, spec),
        machine.device,
    )
    given = [rows, *(cache.flatten(0, 1) for cache in caches)]
    whole = [part.transpose(0, 1)[None] for part in given]
    theirs_s = seconds(
        lambda: torch.nn.functional.scaled_dot_product_attention(
            *whole, is_causal=True, enable_gqa=True
        ),
        machine.device,
    )
    figure = f"{ours_s * 1e3:.3f} ms, torch {theirs_s * 1e3:.3f} ms"
    yield PREFILL_KERNEL.line(theirs_s / ours_s, figure)
