"""Tiles of quantized weights as kernels read them: float32 from the bytes of each format.

See kernels/quant/<format>.py for what the bytes mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.quant.fp8 import Fp8Weight
from kernels.quant.gguf import GgufWeight
from kernels.quant.int4 import Int4Weight
from kernels.quant.int8 import Int8Weight
from kernels.quant.mxfp4 import Mxfp4Weight
from kernels.quant.packed import PackedWeight

DENSE, INT8, INT4, FP8, MXFP4 = range(5)
GGUF_KINDS = {"Q4_0": 5, "Q8_0": 6, "Q4_K": 7, "Q5_K": 8, "Q6_K": 9}


@dataclass(frozen=True, slots=True)
class Tiles:
    """What weight_tile reads: weight [N, ...], of experts [E, N, ...]; scales and zeros beside it.
    group: how many columns share a scale."""

    kind: int
    weight: Tensor
    scales: Tensor
    zeros: Tensor | None = None
    group: int = 1


def tiles_of(weight: Tensor | PackedWeight) -> Tiles:
    """The tiles of weights [N, C] or [E, N, C]. Scales of FP8 are of rows, [N, 1], or of blocks."""
    match weight:
        case Tensor():
            return Tiles(DENSE, weight, weight)
        case Int4Weight(packed, scales, zeros):
            return Tiles(INT4, packed, scales, zeros, weight.group)
        case Int8Weight(values, scales):
            scales = scales.view(*values.shape[:-1], -1)
            return Tiles(INT8, values, scales, None, values.shape[-1] // scales.shape[-1])
        case Fp8Weight(values, scale) if scale.shape == (*values.shape[:-1], 1):
            return Tiles(INT8, values, scale, None, values.shape[-1])  # as it lies for int8
        case Fp8Weight(values, scale):
            return Tiles(FP8, values, scale, None, 128)
        case Mxfp4Weight(blocks, scales):
            return Tiles(MXFP4, blocks.flatten(-2), scales, None, 32)
        case GgufWeight(rows, kind):
            rows = rows.contiguous()
            return Tiles(GGUF_KINDS[kind], rows, rows.view(torch.float16))
    raise TypeError(f"no kernel reads {type(weight).__name__}")


@triton.jit
def weight_tile(
    weight, scales, zeros, row, begin, rows, width, weight_stride, scale_stride,
    GROUP: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The weights [N, BLOCK] at row [N] and the columns from begin on; 0 outside rows and width.
    GROUP: how many columns share a scale."""
    column = (begin + tl.arange(0, BLOCK))[None, :]
    inside = (row < rows)[:, None] & (column < width)
    wide = row.to(tl.int64)[:, None]
    place = weight + wide * weight_stride
    of_row = scales + wide * scale_stride
    if KIND == 0:
        result = tl.load(place + column, mask=inside, other=0.0).to(tl.float32)
    elif KIND == 1:
        quants = tl.load(place + column, mask=inside, other=0.0).to(tl.float32)
        result = quants * _of_group(of_row, begin, inside, column, GROUP, BLOCK).to(tl.float32)
    elif KIND == 2:
        quants = _pairs(place, begin, row < rows, width, BLOCK)
        zero = _of_group(zeros + wide * scale_stride, begin, inside, column, GROUP, BLOCK)
        scale = _of_group(of_row, begin, inside, column, GROUP, BLOCK).to(tl.float32)
        result = (quants - zero.to(tl.int32)).to(tl.float32) * scale
    elif KIND == 3:
        of_block = scales + wide // GROUP * scale_stride
        quants = tl.load(place + column, mask=inside, other=0.0).to(tl.float32)
        result = quants * _of_group(of_block, begin, inside, column, GROUP, BLOCK).to(tl.float32)
    elif KIND == 4:
        exponent = _of_group(of_row, begin, inside, column, GROUP, BLOCK).to(tl.float32) - 127
        result = _e2m1(_pairs(place, begin, row < rows, width, BLOCK)) * tl.exp2(exponent)
    elif KIND == 5:
        block, at = column // 32, column % 32
        quants = _nibble(place, block * 18 + 2 + at % 16, at // 16, inside)
        result = (quants - 8).to(tl.float32) * _half(of_row, block * 9, inside)
    elif KIND == 6:
        block, at = column // 32, column % 32
        quants = _signed(place, block * 34 + 2 + at, inside)
        result = quants.to(tl.float32) * _half(of_row, block * 17, inside)
    elif KIND == 9:
        result = _q6_k(place, of_row, column // 256, column % 256, inside)
    else:
        result = _q45_k(place, of_row, column // 256, column % 256, inside, KIND == 8)
    return result


@triton.jit
def _of_group(of_row, begin, inside, column, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """What the columns' groups have: [N, 1] where a tile lies in one group, else [N, BLOCK]."""
    if GROUP % BLOCK == 0:
        first = tl.max(inside.to(tl.int32), axis=1, keep_dims=True) > 0
        result = tl.load(of_row + begin // GROUP, mask=first, other=0)
    else:
        result = tl.load(of_row + column // GROUP, mask=inside, other=0)
    return result


@triton.jit
def _pairs(place, begin, real, width, BLOCK: tl.constexpr):
    """Nibbles [N, BLOCK], two of each byte, the lower one first; each byte is read once."""
    pair = (begin // 2 + tl.arange(0, BLOCK // 2))[None, :]
    both = tl.load(place + pair, mask=real[:, None] & (2 * pair < width), other=0)
    joined = tl.join(both & 15, both >> 4)
    return tl.reshape(joined, [both.shape[0], BLOCK]).to(tl.int32)


@triton.jit
def _byte(place, at, inside):
    return tl.load(place + at, mask=inside, other=0).to(tl.int32)


@triton.jit
def _signed(place, at, inside):
    value = _byte(place, at, inside)
    return value - 2 * (value & 128)


@triton.jit
def _nibble(place, at, upper, inside):
    return (_byte(place, at, inside) >> (4 * upper)) & 15


@triton.jit
def _half(of_row, at, inside):
    return tl.load(of_row + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _e2m1(nibble):
    """Four bits as float32: sign, two bits of exponent, one of mantissa."""
    exponent, mantissa = (nibble >> 1) & 3, (nibble & 1).to(tl.float32)
    magnitude = tl.exp2((exponent - 1).to(tl.float32)) * (1 + 0.5 * mantissa)
    magnitude = tl.where(exponent == 0, 0.5 * mantissa, magnitude)
    return tl.where(nibble >= 8, -magnitude, magnitude)


@triton.jit
def _q45_k(place, of_row, block, at, inside, FIVE: tl.constexpr):
    size: tl.constexpr = 176 if FIVE else 144
    part, offset = at // 32, at % 32
    first = block * size
    early = part < 4
    # The upper two bits of the last four scales and minima are in the bytes of the first four.
    low = _byte(place, first + 4 + part % 4, inside)
    middle = _byte(place, first + 8 + part % 4, inside)
    high = _byte(place, first + 12 + part % 4, inside)
    scale = tl.where(early, low & 63, (high & 15) | ((low >> 2) & 48)).to(tl.float32)
    minimum = tl.where(early, middle & 63, (high >> 4) | ((middle >> 2) & 48)).to(tl.float32)
    quants = _nibble(place, first + (size - 128) + part // 2 * 32 + offset, part % 2, inside)
    if FIVE:
        quants |= ((_byte(place, first + 16 + offset, inside) >> part) & 1) << 4
    scale *= _half(of_row, first // 2, inside)
    minimum *= _half(of_row, first // 2 + 1, inside)
    return quants.to(tl.float32) * scale - minimum


@triton.jit
def _q6_k(place, of_row, block, at, inside):
    first, upper, within = block * 210, at // 128, at % 128
    quants = _nibble(place, first + upper * 64 + within % 64, within // 64, inside)
    shift = 2 * (within // 32)
    quants |= ((_byte(place, first + 128 + upper * 32 + within % 32, inside) >> shift) & 3) << 4
    scale = _signed(place, first + 192 + at // 16, inside).to(tl.float32)
    return (quants - 32).to(tl.float32) * (scale * _half(of_row, first // 2 + 104, inside))
