"""Quantized matmuls: each format against its source, the kernel against the format."""

from __future__ import annotations

import gguf as gguf_package
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from kernels.quant import fp8, gguf, int4, int8, mxfp4
from kernels.quant import triton as kernel
from tests.kernels import int8_weights
from tests.kernels.tolerances import EXACT_ENOUGH, apart, assert_near, few, normal

FORMATS = tuple(gguf.FORMATS)
shapes = st.tuples(st.integers(0, 40), st.integers(1, 70), st.sampled_from((32, 64, 160)))


def bytes_like(*shape: int, seed: int = 0) -> Tensor:
    """Random bytes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator)


def packed_rows(kind: str, rows: int, blocks: int) -> Tensor:
    """GGUF rows of numbers of size 1 or so, quantized by the gguf package where it can."""
    block = gguf.FORMATS[kind]
    raw = bytes_like(rows, blocks, block.block_bytes)
    scales = {"Q4_K": (0, 4), "Q5_K": (0, 4), "Q6_K": (208, 210)}.get(kind, (0, 2))
    halves = torch.full((rows, blocks, (scales[1] - scales[0]) // 2), 0.003).half()
    raw[..., slice(*scales)] = halves.view(torch.uint8)
    return raw.flatten(1)


@pytest.mark.parametrize("kind", FORMATS)
def test_gguf_blocks_are_read_as_the_gguf_package_reads_them(kind: str) -> None:
    raw = bytes_like(64, 3 * gguf.FORMATS[kind].block_bytes).numpy()
    with np.errstate(all="ignore"):
        expected = gguf_package.quants.dequantize(raw, gguf_package.GGMLQuantizationType[kind])
    got = gguf.dequantize(torch.from_numpy(raw), kind).numpy()
    assert np.array_equal(got, expected, equal_nan=True)


def test_an_unknown_format_and_a_broken_row_are_named() -> None:
    with pytest.raises(ValueError, match="'IQ1_S' is not supported; these are: Q4_0"):
        gguf.dequantize(bytes_like(1, 18), "IQ1_S")
    with pytest.raises(ValueError, match="a row of 19 bytes is not a whole number of Q4_0 blocks"):
        gguf.dequantize(bytes_like(1, 19), "Q4_0")


@few
@given(
    st.sampled_from(FORMATS),
    st.integers(0, 40),
    st.integers(1, 70),
    st.integers(1, 2),
    st.sampled_from(EXACT_ENOUGH),
)
def test_the_gguf_kernel_matches_for_any_shape(
    kind: str, tokens: int, rows: int, blocks: int, dtype: torch.dtype
) -> None:
    packed = packed_rows(kind, rows, blocks)
    x = normal(tokens, blocks * gguf.FORMATS[kind].block_weights, dtype=dtype) / 16
    bias = normal(rows, dtype=dtype)
    weight = gguf.GgufWeight(packed, kind)
    assert_near(kernel.linear(apart(x), weight, bias), weight.linear(x, bias))


def test_a_gguf_matmul_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, x = packed_rows("Q4_K", 50, 1), normal(3, 256)
    whole = gguf.linear(x, packed, "Q4_K", None)
    monkeypatch.setattr(gguf, "WEIGHTS_AT_ONCE", 256 * 7)
    assert_near(gguf.linear(x, packed, "Q4_K", None), whole)
    assert_near(whole, functional.linear(x, gguf.dequantize(packed, "Q4_K")))


def words(nibbles: Tensor) -> Tensor:
    """Eight nibbles along the last dimension to one int32, the first lowest."""
    shifted = nibbles.long().unflatten(-1, (-1, 8)) << torch.arange(0, 32, 4)
    return shifted.sum(-1).to(torch.int32)


@pytest.mark.parametrize("act_order", [False, True])
def test_gptq_is_its_formula(act_order: bool) -> None:
    columns, rows, groups = 64, 16, 4
    quants, zeros = bytes_like(columns, rows) % 16, bytes_like(groups, rows, seed=1) % 15
    scales = normal(groups, rows).abs()
    g_idx = torch.arange(columns) // 16
    if act_order:
        g_idx = g_idx[torch.randperm(columns, generator=torch.Generator().manual_seed(5))]
    expected = (quants.float() - (zeros[g_idx].float() + 1)) * scales[g_idx]
    weight = int4.from_gptq(words(quants.T).T, words(zeros), scales, g_idx.int())
    assert (weight.order is not None) == act_order
    assert_near(int4.dequantize(weight), expected.T)
    x = normal(3, columns)
    assert_near(weight.linear(x), x @ expected)
    assert_near(kernel.linear(x, weight, None), x @ expected)


def test_awq_is_its_formula() -> None:
    columns, rows, groups = 64, 16, 2
    quants, zeros = bytes_like(columns, rows) % 16, bytes_like(groups, rows, seed=1) % 16
    scales = normal(groups, rows).abs()
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # AutoAWQ packs column order[i] at nibble i

    def packed(values: Tensor) -> Tensor:
        return words(values.unflatten(-1, (-1, 8))[..., order].flatten(-2))

    weight = int4.from_awq(packed(quants), packed(zeros), scales)
    spread = torch.arange(columns) // 32
    expected = (quants.float() - zeros[spread].float()) * scales[spread]
    assert_near(int4.dequantize(weight), expected.T)


@pytest.mark.parametrize("symmetric", [True, False])
def test_compressed_tensors_int4_is_its_formula(symmetric: bool) -> None:
    quants, zeros = bytes_like(16, 64) % 16, bytes_like(16, 2, seed=1) % 16
    scales = normal(16, 2).abs()
    packed_zeros = None if symmetric else words(zeros.T).T
    weight = int4.from_compressed(words(quants), scales, packed_zeros)
    of_groups = torch.full_like(zeros, 8) if symmetric else zeros
    centred = quants.float().unflatten(1, (2, 32)) - of_groups.float()[..., None]
    assert_near(int4.dequantize(weight), (centred * scales[..., None]).flatten(1))


@few
@given(shapes, st.sampled_from(EXACT_ENOUGH), st.sampled_from((16, 32)), st.booleans())
def test_the_int4_and_int8_kernels_match_for_any_shape(
    shape: tuple[int, int, int], dtype: torch.dtype, group: int, biased: bool
) -> None:
    tokens, rows, width = shape
    x, dense = normal(tokens, width, dtype=dtype) / width**0.5, normal(rows, width, seed=1)
    bias = normal(rows, dtype=dtype) if biased else None
    groups = width // group
    weight = int4.Int4Weight(
        bytes_like(rows, width // 2),
        torch.full((rows, groups), 0.2, dtype=dtype),
        bytes_like(rows, groups) % 16,
        torch.arange(width).flip(0),
    )
    assert_near(kernel.linear(apart(x), weight, bias), weight.linear(x, bias))
    for of in (group, None):
        narrow = int8.Int8Weight(*int8_weights.quantize(dense, of))
        assert_near(kernel.linear(apart(x), narrow, bias), narrow.linear(x, bias))


def test_int8_loses_less_than_a_hundredth() -> None:
    weight = normal(8, 64)
    for group in (None, 16):
        near = int8.dequantize(*int8_weights.quantize(weight, group))
        assert (near - weight).norm() < 0.01 * weight.norm()


@pytest.mark.parametrize("shape", [(), (1,), (200,), (200, 1), (2, 3)])
def test_fp8_scales_are_of_the_tensor_its_rows_or_its_blocks(shape: tuple[int, ...]) -> None:
    weight, scale = normal(200, 300).to(torch.float8_e4m3fn), normal(*shape).abs()
    expected = weight.float()
    for row in (0, 127, 128, 199):
        for column in (0, 127, 128, 299):
            at = scale.flatten()[0]
            if scale.numel() == 200:
                at = scale.flatten()[row]
            elif shape == (2, 3):
                at = scale[row // 128, column // 128]
            got = fp8.dequantize(weight, scale)[row, column]
            assert_near(got, expected[row, column] * at)


@few
@given(shapes, st.sampled_from(EXACT_ENOUGH))
def test_the_fp8_kernel_matches_for_any_shape(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    tokens, rows, width = shape
    x, bias = normal(tokens, width, dtype=dtype) / width**0.5, normal(rows, dtype=dtype)
    values = normal(rows, width, seed=1).to(torch.float8_e4m3fn)
    weight = fp8.Fp8Weight(values, normal(-(-rows // 128), -(-width // 128)).abs())
    assert_near(kernel.linear(apart(x), weight, bias), weight.linear(x, bias))


def test_mxfp4_is_a_table_times_a_power_of_two() -> None:
    blocks = torch.zeros(1, 1, 16, dtype=torch.uint8)
    blocks[0, 0, :8] = torch.arange(0, 16, 2) | (torch.arange(1, 16, 2) << 4)
    got = mxfp4.dequantize(blocks, torch.tensor([[129]], dtype=torch.uint8))[0, :16]
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    assert got.tolist() == [4 * value for value in values]


def test_tokens_quantized_to_fp8_come_back_near() -> None:
    x = normal(5, 64)
    quants, scale = fp8.quantize_tokens(x)
    assert (quants.float() * scale - x).norm() < 0.04 * x.norm()


@pytest.mark.parametrize("shape", [(), (48,), (48, 1)])
def test_a_scaled_fp8_matmul_is_near_the_exact_one(shape: tuple[int, ...]) -> None:
    weight = normal(48, 64, seed=1).to(torch.float8_e4m3fn)
    x, scale, bias = normal(2, 3, 64, dtype=torch.bfloat16), normal(*shape).abs(), normal(48)
    exact = functional.linear(x.float(), fp8.dequantize(weight, scale), bias)
    got = fp8.scaled_linear(x, weight, scale, bias.bfloat16())
    assert got.dtype == torch.bfloat16
    assert (got.float() - exact).norm() < 0.04 * exact.norm()


@few
@given(
    st.integers(0, 20),
    st.sampled_from((1, 16, 37, 48, 70)),
    st.sampled_from((1, 16, 65, 72, 100, 192)),
)
def test_few_tokens_in_bfloat16_times_int8_are_near_the_exact_product(
    tokens: int, rows: int, width: int
) -> None:
    quants, scales = int8_weights.quantize(normal(rows, width, seed=1))
    x, bias = normal(tokens, width, dtype=torch.bfloat16) / width**0.5, normal(rows).bfloat16()
    exact = functional.linear(x.float(), int8.dequantize(quants, scales), bias.float())
    assert_near(int8.linear(apart(x), quants, scales, bias), exact.bfloat16())
