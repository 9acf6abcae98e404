"""Mixtures of experts: the meaning against one token after the other, the kernel against it."""

from __future__ import annotations

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels.activations.naive import silu_mul
from kernels.moe import naive
from kernels.moe import triton as kernel
from kernels.quant import fp8, mxfp4
from kernels.quant.fp8 import Fp8Weight
from kernels.quant.gguf import GgufWeight
from kernels.quant.int4 import Int4Weight
from kernels.quant.int8 import Int8Weight
from kernels.quant.mxfp4 import Mxfp4Weight
from kernels.quant.packed import PackedWeight
from tests.kernels import int8_weights
from tests.kernels.tolerances import EXACT_ENOUGH, apart, assert_near, few, normal

Experts = tuple[Tensor, Tensor, tuple[Tensor, Tensor]]


def experts_of(count: int, inner: int, width: int, dtype: torch.dtype = torch.float32) -> Experts:
    """gate_up, down and their biases, scaled so that outputs are about as large as inputs."""
    up = normal(count, 2 * inner, width, dtype=dtype) / width**0.5
    down = normal(count, width, inner, dtype=dtype, seed=1) / inner**0.5
    biases = normal(count, 2 * inner, dtype=dtype), normal(count, width, dtype=dtype, seed=2)
    return up, down, biases


def test_weights_are_the_softmax_over_all_experts_or_over_the_chosen() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, -1.0]])
    shares = torch.softmax(logits, -1)[0]
    weights, experts = naive.route(logits, 2, normalize=False)
    assert experts.tolist() == [[1, 2]]
    assert experts.dtype == torch.int32
    assert_near(weights[0], shares[[1, 2]])
    normalized = shares[[1, 2]] / shares[[1, 2]].sum()
    assert_near(naive.route(logits, 2, normalize=True)[0][0], normalized)
    assert_near(naive.route(logits, 2, normalize=False, softmax_first=False)[0][0], normalized)


@pytest.mark.parametrize("operation", [naive.expert_mlp, kernel.expert_mlp])
def test_each_token_is_the_weighted_sum_of_its_experts(operation: object) -> None:
    up, down, biases = experts_of(4, 6, 8)
    x = normal(5, 8, seed=3)
    weights, experts = naive.route(normal(5, 4, seed=4), 2, normalize=True)
    expected = torch.zeros(5, 8)
    for token in range(5):
        for weight, expert in zip(weights[token], experts[token].tolist(), strict=True):
            inner = silu_mul(up[expert] @ x[token] + biases[0][expert])
            expected[token] += weight * (down[expert] @ inner + biases[1][expert])
    got = operation(x, up, down, weights, experts, silu_mul, biases)  # type: ignore[operator]
    assert_near(got, expected)


@pytest.mark.parametrize("operation", [naive.expert_mlp, kernel.expert_mlp])
def test_an_expert_that_is_elsewhere_adds_nothing(operation: object) -> None:
    up, down, biases = experts_of(4, 6, 8)
    x = normal(5, 8, seed=3)
    weights, experts = naive.route(normal(5, 4, seed=4), 2, normalize=True)
    whole = naive.expert_mlp(x, up, down, weights, experts, silu_mul, biases)
    parts = []
    for first in (0, 2):
        own = slice(first, first + 2)
        places = (experts - first).masked_fill((experts < first) | (experts >= first + 2), 2)
        kept = tuple(bias[own] for bias in biases)
        parts.append(operation(x, up[own], down[own], weights, places, silu_mul, kept))  # type: ignore[operator]
    assert_near(sum(parts), whole)


@few
@given(
    st.integers(0, 40),
    st.integers(1, 6),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from(EXACT_ENOUGH),
    st.booleans(),
    st.data(),
)
def test_the_kernel_matches_for_any_shape_and_with_experts_that_nobody_chose(
    tokens: int,
    count: int,
    inner: int,
    width: int,
    dtype: torch.dtype,
    biased: bool,
    data: st.DataObject,
) -> None:
    chosen = data.draw(st.integers(1, count))
    up, down, biases = experts_of(count, inner, width, dtype)
    weights, experts = naive.route(normal(tokens, chosen, seed=5), chosen, normalize=True)
    x = normal(tokens, width, dtype=dtype, seed=6)
    extra = biases if biased else None
    expected = naive.expert_mlp(x, up, down, weights, experts, silu_mul, extra)
    got = kernel.expert_mlp(apart(x), up, down, weights, experts, silu_mul, extra)
    assert_near(got, expected, 3.0)


def test_experts_in_mxfp4_give_what_their_weights_give() -> None:
    up, down = (
        Mxfp4Weight(
            torch.arange(3 * rows * width // 2).mul(37).to(torch.uint8).view(3, rows, -1, 16),
            torch.full((3, rows, width // 32), 124, dtype=torch.uint8),
        )
        for rows, width in ((64, 96), (96, 32))
    )
    x = normal(6, 96) / 10
    weights, experts = naive.route(normal(6, 3), 2, normalize=True)
    dense = (mxfp4.dequantize(packed.blocks, packed.scales) for packed in (up, down))
    expected = naive.expert_mlp(x, *dense, weights, experts, silu_mul)
    assert_near(naive.expert_mlp(x, up, down, weights, experts, silu_mul), expected)
    assert_near(kernel.expert_mlp(x, up, down, weights, experts, silu_mul), expected)


def packed_experts(kind: str, count: int, rows: int, width: int, seed: int) -> PackedWeight:
    """Random weights [count, rows, width] in this format, about as large as width**-0.5."""
    dense = normal(count, rows, width, seed=seed) / width**0.5
    codes = torch.arange(dense.numel()).mul(37 + seed).view(dense.shape)
    if kind == "int4":
        groups = width // 32
        scales = 0.02 + normal(count, rows, groups, seed=seed).abs() / 100
        zeros = codes[..., :groups].remainder(16).to(torch.uint8)
        return Int4Weight(codes[..., : width // 2].remainder(256).to(torch.uint8), scales, zeros)
    if kind in ("int8_rows", "int8_groups"):
        parts = [
            int8_weights.quantize(each, 32 if kind == "int8_groups" else None) for each in dense
        ]
        return Int8Weight(*(torch.stack(values) for values in zip(*parts, strict=True)))
    if kind in ("fp8_rows", "fp8_blocks"):
        scales = dense.abs().amax(dim=-1, keepdim=True) / 448
        if kind == "fp8_blocks":
            blocks = (count, -(-rows // 128), -(-width // 128))
            scales = scales.max() * (1 + normal(*blocks, seed=seed).abs())
        wide = torch.stack([fp8.broadcast_scale(*pair) for pair in zip(dense, scales, strict=True)])
        return Fp8Weight((dense / wide).to(torch.float8_e4m3fn), scales)
    packed = gguf.quants.quantize(dense.numpy(), gguf.GGMLQuantizationType[kind])
    return GgufWeight(torch.from_numpy(packed), kind)


KINDS = ("int4", "int8_rows", "int8_groups", "fp8_rows", "fp8_blocks", "Q8_0", "Q4_0")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 6, 40])
def test_packed_experts_give_what_their_weights_give(kind: str, tokens: int) -> None:
    up, down = packed_experts(kind, 3, 128, 160, 1), packed_experts(kind, 3, 160, 64, 2)
    dense = tuple(
        torch.stack([part[each].linear(torch.eye(width)).T for each in range(3)])
        for part, width in ((up, 160), (down, 64))
    )
    assert dense[0].shape == (3, 128, 160)
    x = normal(tokens, 160, seed=3)
    biases = normal(3, 128, seed=4), normal(3, 160, seed=5)
    weights, experts = naive.route(normal(tokens, 3, seed=6), 2, normalize=True)
    expected = naive.expert_mlp(x, *dense, weights, experts, silu_mul, biases)
    assert_near(naive.expert_mlp(x, up, down, weights, experts, silu_mul, biases), expected, 3.0)
    assert_near(kernel.expert_mlp(x, up, down, weights, experts, silu_mul, biases), expected, 3.0)
