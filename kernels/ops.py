"""The operations of a forward pass, each by the fastest implementation for its tensors.

Owns the choice: Triton kernels for CUDA tensors, and for all tensors where TRITON_INTERPRET=1
asks for the interpreter; else PyTorch (naive.py), whose CPU path is meant for work. Knows nothing
of models or requests. Nothing here imports Triton before a kernel is needed.

Letters in shapes: T tokens of the step over all its sequences, S sequences, H query heads,
K key heads, D head_dim, B block size, M blocks of the longest table, V vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from kernels.activations import naive as activations
from kernels.attention_spec import AttentionSpec
from kernels.cache.naive import CacheScales
from kernels.decode import naive as decode
from kernels.moe import naive as moe
from kernels.norms import naive as norms
from kernels.prefill import naive as prefill
from kernels.quant import fp8, gguf, int4, int8
from kernels.quant.experts import (
    Fp8Experts,
    GgufExperts,
    Int4Experts,
    Int8Experts,
    Mxfp4Experts,
    PackedExperts,
)
from kernels.quant.int4 import Int4Weight
from kernels.rope import naive as rope
from kernels.rope.naive import Rotation
from kernels.rope.tables import rope_tables
from kernels.sampling import naive as sampling
from kernels.sampling.naive import Draw

__all__ = [
    "AttentionSpec",
    "CacheScales",
    "Fp8Experts",
    "GgufExperts",
    "Int4Experts",
    "Int4Weight",
    "Int8Experts",
    "Mxfp4Experts",
    "PackedExperts",
    "add_rms_norm",
    "attention",
    "decode_attention",
    "expert_mlp",
    "gelu_mul",
    "layer_norm",
    "linear_fp8",
    "linear_gguf",
    "linear_w4a16",
    "linear_w8a16",
    "prefill_attention",
    "rms_norm",
    "rope_tables",
    "rotate_and_store",
    "route",
    "sample",
    "silu_mul",
]

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_HAS_TRITON = find_spec("triton") is not None
_QUANT = "kernels.quant.triton"
# With more tokens than this a matmul is bound by arithmetic: the weights are dequantized whole then
# and torch's own matmul is used. Not measured on a GPU.
_MAX_ROWS_IN_KERNEL = 256


@cache
def _triton(op: str) -> Any:
    return import_module(op)


def _implementation(naive: Any, tensor: Tensor) -> Any:
    """The module of naive's operation that computes on tensor."""
    return _triton(naive.__name__.replace(".naive", ".triton")) if uses_triton(tensor) else naive


def uses_triton(tensor: Tensor) -> bool:
    """Whether the operations on tensor run as Triton kernels."""
    return _HAS_TRITON and (tensor.is_cuda or _INTERPRETED)


def _dequantizes_in_matmul(x: Tensor) -> bool:
    """Whether a matmul of x [..., C] reads quantized weights as they are."""
    return uses_triton(x) and x.numel() <= _MAX_ROWS_IN_KERNEL * x.shape[-1]


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, offset: float = 0.0) -> Tensor:
    """x [..., N] / sqrt(mean(x²) + eps) * (weight [N] + offset), computed in float32."""
    return _implementation(norms, x).rms_norm(x, weight, eps, offset)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, *, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """(rms_norm of x + residual, x + residual), both [..., N] in x's dtype."""
    normed, total = _implementation(norms, x).add_rms_norm(x, residual, weight, eps, offset)
    return normed, total


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """(x [..., N] - mean) / sqrt(variance + eps) * weight [N] + bias [N], in float32."""
    return _implementation(norms, x).layer_norm(x, weight, bias, eps)


def silu_mul(x: Tensor) -> Tensor:
    """silu(gate) * up [..., N], of x [..., 2N] = gate and up side by side."""
    return _implementation(activations, x).silu_mul(x)


def gelu_mul(x: Tensor, *, tanh: bool = True) -> Tensor:
    """gelu(gate) * up [..., N], of x [..., 2N]; tanh: gelu's approximation by tanh."""
    return _implementation(activations, x).gelu_mul(x, tanh)


def rotate_and_store(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    *,
    scales: CacheScales | None = None,
) -> Tensor:
    """Turn query [T, H, D] (the result) and key [T, K, D] to positions [T]; write key and value
    [T, K, D] to the caches [blocks, B, K, D].

    cos, sin: float32 [P, R / 2], of which the first R of D dimensions are turned, half-split.
    slots int64 [T]: block * B + offset, -1 for a token that is not stored. Caches of int8 want
    scales, those of float8_e4m3fn take them: float32 [blocks, B, K], written here.
    """
    rotation = Rotation(cos, sin, positions)
    rows, caches = (query, key, value), (key_cache, value_cache)
    rotated: Tensor = _implementation(rope, query).rotate_and_store(
        rows, rotation, caches, slots, scales
    )
    return rotated


def prefill_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    spec: AttentionSpec,
    *,
    scales: CacheScales | None = None,
) -> Tensor:
    """[T, H, D]: each sequence's last tokens, query [T, H, D], over all its context in the cache.

    block_tables int32 [S, M]; query_starts int32 [S + 1]: where each sequence's tokens begin in
    query; context_lengths int32 [S]: with the tokens of this step.
    """
    caches = (key_cache, value_cache)
    return _implementation(prefill, query).prefill_attention(
        query, caches, block_tables, query_starts, context_lengths, spec, scales
    )


def decode_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
    spec: AttentionSpec,
    *,
    scales: CacheScales | None = None,
) -> Tensor:
    """[S, H, D]: one token a sequence, query [S, H, D], over its context_lengths [S] tokens in
    the cache, itself included; zeros where that is 0. The launch depends on shapes only, so that
    a CUDA graph can replay it with other lengths."""
    return _implementation(decode, query).decode_attention(
        query, (key_cache, value_cache), block_tables, context_lengths, spec, scales
    )


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    spec: AttentionSpec,
) -> Tensor:
    """[T, H, D]: query [T, H, D] over key, value [T, K, D] without a cache, each sequence by
    itself; starts int32 [S + 1]: where they begin."""
    return _implementation(prefill, query).attention(query, key, value, starts, spec)


def route(
    logits: Tensor, top_k: int, *, normalize: bool, softmax_first: bool = True
) -> tuple[Tensor, Tensor]:
    """(weights float32 [T, top_k], experts int32 [T, top_k]) of router logits [T, E], best first.

    softmax_first: the weights come from the softmax over all experts (normalize: divided by their
    sum); else from the softmax over the chosen ones, as in gpt-oss.
    """
    return moe.route(logits, top_k, normalize, softmax_first)


def expert_mlp(
    x: Tensor,
    gate_up: Tensor | PackedExperts,
    down: Tensor | PackedExperts,
    weights: Tensor,
    experts: Tensor,
    activation: Callable[[Tensor], Tensor],
    *,
    biases: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """[T, C] = sum over each token's experts of weight * down(activation(gate_up(x [T, C]))).

    gate_up [E, 2N, C], down [E, C, N], dense or packed; weights and experts [T, top_k] as from
    route; biases of gate_up [E, 2N] and of down [E, C]; activation [rows, 2N] -> [rows, N], such
    as silu_mul.
    """
    return _implementation(moe, x).expert_mlp(
        x, gate_up, down, weights, experts, activation, biases
    )


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seeds: Tensor,
    steps: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """One token a row, int64 [S], of logits float32 [S, V]; -1 where a row holds a NaN.

    temperature float32 [S], 0 or less: the highest logit, of equal ones the lowest id. top_k [S],
    0 or less: all. top_p float32 [S], 1 or more: all. min_p float32 [S], 0 or less: all. They
    apply in this order, at temperature 1. seeds, steps int64 [S]: the same pair draws the same
    token from the same logits, whatever else is in the batch. mask int32 [S, ceil(V / 32)]: bit i
    of word w allows token 32 w + i.
    """
    draw = Draw(temperature, top_k, top_p, min_p, seeds, steps)
    return _implementation(sampling, logits).sample(logits, draw, mask)


def linear_w8a16(x: Tensor, weight: Tensor, scales: Tensor, bias: Tensor | None = None) -> Tensor:
    """[..., N] = x [..., C] times (weight int8 [N, C] * scales), transposed, plus bias [N]; scales
    [N], [N, 1] or [N, C / group]."""
    if _dequantizes_in_matmul(x):
        return _triton(_QUANT).linear_int8(x, weight, scales, bias)
    return int8.linear(x, weight, scales, bias)


def linear_w4a16(x: Tensor, weight: Int4Weight, bias: Tensor | None = None) -> Tensor:
    """[..., N] = x [..., C] times the weights of four bits [N, C], transposed, plus bias [N]; see
    kernels.quant.int4 for the ways from GPTQ's, AWQ's and compressed-tensors' layouts."""
    if _dequantizes_in_matmul(x):
        return _triton(_QUANT).linear_int4(x, weight, bias)
    return int4.linear(x, weight, bias)


def linear_fp8(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """[..., N] = x [..., C] times (weight float8_e4m3fn [N, C] * scale), transposed, plus bias
    [N]; scale: of the tensor, of its rows [N], or of blocks of 128 x 128."""
    if _scales_fp8(x, weight, scale):
        return fp8.scaled_linear(x, weight, scale, bias)
    if _dequantizes_in_matmul(x) and fp8.per_block(weight, scale):
        return _triton(_QUANT).linear_fp8(x, weight, scale, bias)
    return fp8.linear(x, weight, scale, bias)


def _scales_fp8(x: Tensor, weight: Tensor, scale: Tensor) -> bool:
    """Whether torch._scaled_mm takes these."""
    if not x.is_cuda or torch.cuda.get_device_capability(x.device) < (8, 9):
        return False
    return (scale.numel() == 1 or fp8.per_row(weight, scale)) and not any(
        size % 16 for size in weight.shape
    )


def linear_gguf(x: Tensor, packed: Tensor, kind: str, bias: Tensor | None = None) -> Tensor:
    """[..., N] = x [..., C] times the weights of packed uint8 [N, row_bytes], in GGUF's format
    kind (Q4_0, Q8_0, Q4_K, Q5_K, Q6_K), transposed, plus bias [N]."""
    if _dequantizes_in_matmul(x):
        return _triton(_QUANT).linear_gguf(x, packed, kind, bias)
    return gguf.linear(x, packed, kind, bias)
