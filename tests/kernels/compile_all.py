"""`python -m tests.kernels.compile_all [once]`: every kernel, compiled for an H200 without one.

once: each in one of its variants, which takes a quarter of the time.

Prints a JSON object: the name of each kernel and the shared memory, in bytes, of the greatest of
its variants. Shapes are those of Llama 3.1 8B, and of Gemma for wide heads.
"""

from __future__ import annotations

import json
import sys

import torch

from kernels.activations import triton as activations
from kernels.attention_spec import AttentionSpec
from kernels.cache.naive import CacheScales
from kernels.decode import triton as decode
from kernels.lora import triton as lora
from kernels.lora.naive import LoraBank, group_tokens
from kernels.moe import triton as moe
from kernels.norms import triton as norms
from kernels.prefill import triton as prefill
from kernels.quant import gguf
from kernels.quant import triton as quant
from kernels.quant.fp8 import Fp8Weight
from kernels.quant.gguf import GgufWeight
from kernels.quant.int4 import Int4Weight
from kernels.quant.int8 import Int8Weight
from kernels.quant.mxfp4 import Mxfp4Weight
from kernels.quant.packed import PackedWeight
from kernels.rope import rope_tables
from kernels.rope import triton as rope
from kernels.rope.naive import Rotation
from kernels.sampling import triton as sampling
from kernels.sampling.naive import Draw
from tests.kernels.compiling import compiling

BF16 = torch.bfloat16
INT32 = torch.int32
TOKENS = 5


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=BF16)


def elementwise() -> None:
    x, weight = bf16(TOKENS, 4096), bf16(4096)
    norms.rms_norm(x, weight, 1e-5)
    norms.add_rms_norm(x, x, weight, 1e-5)
    norms.layer_norm(x, weight, weight, 1e-5)
    activations.silu_mul(x)
    activations.gelu_mul(x)
    activations.gelu_mul(x, tanh=False)


def attention(dtype: torch.dtype, width: int, spec: AttentionSpec) -> None:
    heads = 32
    shape = (100, 64, 8, width)
    caches = tuple(torch.zeros(shape).to(dtype) for _ in range(2))
    scales = None
    if dtype != BF16:
        scales = CacheScales(torch.zeros(shape[:3]), torch.zeros(shape[:3]))
    query, key = bf16(TOKENS, heads, width), bf16(TOKENS, 8, width)
    positions, tables = torch.arange(TOKENS), torch.zeros(TOKENS, 64, dtype=INT32)
    rotation = Rotation(*rope_tables(width, 1e4, 50, None, "cpu"), positions)
    rope.rotate_and_store((query, key, key), rotation, caches, positions, scales)
    lengths = torch.zeros(TOKENS, dtype=INT32)
    decode.decode_attention(query, caches, tables, lengths, spec, scales)
    decode.decode_attention(query, caches, tables, lengths, spec, scales, splits=1)
    starts = torch.tensor([0, 512, 1000, 2048], dtype=INT32)
    rows = bf16(2048, heads, width)
    prefill.prefill_attention(rows, caches, tables, starts, lengths, spec, scales)
    few = torch.arange(0, TOKENS + 1, dtype=INT32)
    prefill.prefill_attention(query, caches, tables, few, lengths, spec, scales)
    if dtype == BF16:
        values = bf16(2048, 8, width)
        both_ways = AttentionSpec(0.1, spec.window, causal=False)
        prefill.attention(rows, values, values, starts, both_ways)


def choosing() -> None:
    logits, row = torch.zeros(2, 128256), torch.zeros(2)
    whole = torch.zeros(2, dtype=torch.int64)
    draw = Draw(row, whole, row, row, whole, whole)
    for mask in (None, torch.zeros(2, 4008, dtype=INT32)):
        sampling.sample(logits, draw, mask)


def matmuls() -> None:
    for tokens in (1, 64):
        x = bf16(tokens, 4096)
        for kind, block in gguf.FORMATS.items():
            packed = torch.zeros(64, 4096 // block.block_weights * block.block_bytes)
            quant.linear(x, GgufWeight(packed.to(torch.uint8), kind), None)
        half = torch.zeros(64, 2048, dtype=torch.uint8)
        quant.linear(x, Int4Weight(half, bf16(64, 32), half[:, :32]), bf16(64))
        int8 = torch.zeros(64, 4096, dtype=torch.int8)
        quant.linear(x, Int8Weight(int8, torch.zeros(64)), None)
        fp8 = torch.zeros(64, 4096).to(torch.float8_e4m3fn)
        quant.linear(x, Fp8Weight(fp8, torch.zeros(1, 32)), None)
    experts = torch.zeros(64, 2, dtype=INT32)
    up, down = bf16(8, 512, 4096), bf16(8, 4096, 256)
    biases = bf16(8, 512), bf16(8, 4096)
    for extra in (None, biases):
        moe.expert_mlp(x, up, down, torch.zeros(64, 2), experts, activations.silu_mul, extra)
    for pair in zip(packed_experts(512, 4096), packed_experts(4096, 256), strict=True):
        moe.expert_mlp(x, *pair, torch.zeros(64, 2), experts, activations.silu_mul)
    adapters = LoraBank({number: (bf16(16, 4096), bf16(512, 16)) for number in range(8)})
    whose = group_tokens(torch.arange(64) % 8, torch.ones(64), "cpu")
    lora.add_lora(bf16(64, 512), x, adapters, whose)


def packed_experts(rows: int, width: int) -> list[PackedWeight]:
    """Eight maps [rows, width] in each format."""
    codes = torch.zeros(8, rows, width, dtype=torch.uint8)
    groups = bf16(8, rows, width // 128)
    fp8 = codes.to(torch.float8_e4m3fn)
    return [
        Int4Weight(codes[..., ::2].contiguous(), groups, codes[..., : width // 128].contiguous()),
        Int8Weight(codes.to(torch.int8), groups),
        Fp8Weight(fp8, torch.zeros(8, rows, 1)),
        Fp8Weight(fp8, torch.zeros(8, rows // 128, -(-width // 128))),
        Mxfp4Weight(codes[..., ::2].contiguous().unflatten(2, (-1, 16)), codes[..., : width // 32]),
        GgufWeight(torch.zeros(8, rows, width // 32 * 34).byte(), "Q8_0"),
    ]


def main(once: bool) -> None:
    with compiling(once) as made:
        elementwise()
        choosing()
        attention(BF16, 128, AttentionSpec(0.1))
        for dtype in (torch.int8, torch.float8_e4m3fn):
            attention(dtype, 128, AttentionSpec(0.1))
        attention(BF16, 128, AttentionSpec(0.1, 100, None, torch.zeros(32)))
        attention(BF16, 256, AttentionSpec(0.1, 100, 30.0))
        matmuls()
    shared: dict[str, int] = {}
    for kernel in made:
        name, size = kernel.metadata.name, kernel.metadata.shared
        assert kernel.asm["cubin"], name
        shared[name] = max(size, shared.get(name, 0))
    json.dump(shared, sys.stdout)


if __name__ == "__main__":
    main("once" in sys.argv)
