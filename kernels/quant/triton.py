"""Matmuls with quantized weights as one Triton kernel: a tile of weights is dequantized just before
it is multiplied. The formats' meaning is in kernels/quant/<format>.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.quant.int4 import Int4Weight
from kernels.quant.packed import PackedWeight
from kernels.quant.tiles import tiles_of, weight_tile


@triton.jit
def _linear_kernel(
    x, weight, scales, zeros, bias, out, rows, columns, width, x_stride, weight_stride,
    scale_stride, GROUP: tl.constexpr, KIND: tl.constexpr, HAS_BIAS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)).to(tl.int64)
    column = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    total = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], dtype=tl.float32)
    for begin in range(0, width, BLOCK):
        inner = begin + tl.arange(0, BLOCK)
        inside = (row < rows)[:, None] & (inner < width)[None, :]
        tile = tl.load(x + row[:, None] * x_stride + inner[None, :], mask=inside, other=0.0)
        weights = weight_tile(
            weight, scales, zeros, column, begin, columns, width, weight_stride, scale_stride,
            GROUP, KIND, BLOCK,
        )  # fmt: skip
        total = tl.dot(tile, tl.trans(weights.to(tile.dtype)), total, input_precision="ieee")
    if HAS_BIAS:
        total += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = out + row[:, None] * columns + column[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=inside)


def linear(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """x [..., C] times the weights [N, C], transposed, plus bias [N]; x is not quantized."""
    if isinstance(weight, Int4Weight) and weight.order is not None:
        x = x[..., weight.order]
    weights = tiles_of(weight)
    flat, columns = x.reshape(-1, x.shape[-1]), len(weights.weight)
    flat = flat if flat.stride(-1) == 1 else flat.contiguous()
    out = torch.empty((*x.shape[:-1], columns), dtype=x.dtype, device=x.device)
    # Few rows want many programs to read the weights, many rows want them read less often.
    rows, of_rows, of_columns = len(flat), 16, 32
    if rows > 32:
        of_rows, of_columns = 64, 64
    if rows and columns:
        grid = (triton.cdiv(columns, of_columns), triton.cdiv(rows, of_rows))
        _linear_kernel[grid](
            flat, weights.weight, weights.scales, weights.zeros, bias, out, rows, columns,
            x.shape[-1], flat.stride(0), weights.weight.stride(0), weights.scales.stride(0),
            GROUP=weights.group,
            KIND=weights.kind,
            HAS_BIAS=bias is not None,
            BLOCK_ROWS=of_rows,
            BLOCK_COLUMNS=of_columns,
            # A tile inside one group needs one scale a row.
            BLOCK=32 if weights.group % 64 == 32 else 64,
        )  # fmt: skip
    return out
