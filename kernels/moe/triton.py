"""Mixtures of experts as grouped matmuls: rows sorted by expert, one launch for all experts.

An expert's rows begin a new tile; a program finds its expert by binary search. The grid depends on
shapes only, so a CUDA graph can replay it with another routing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.moe.naive import Weights, route
from kernels.quant.tiles import tiles_of, weight_tile
from kernels.segments import segment_of

__all__ = ["expert_mlp", "route"]


@triton.jit
def _grouped_kernel(
    x, weight, scales, zeros, bias, shares, order, starts, out, experts, columns, width, x_stride,
    expert_stride, weight_stride, scale_expert_stride, scale_stride, bias_stride,
    GROUP: tl.constexpr, KIND: tl.constexpr, SPREAD: tl.constexpr, GATHERS: tl.constexpr,
    HAS_BIAS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(1)
    expert, first_block = segment_of(block, starts, experts, ROWS)
    start, end = tl.load(starts + expert), tl.load(starts + expert + 1)
    first = start + (block - first_block) * ROWS
    if first >= end:
        return
    place = first + tl.arange(0, ROWS)
    real = place < end
    origin = tl.load(order + place, mask=real, other=0)
    row = origin // SPREAD if GATHERS else place.to(tl.int64)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    of_expert = weight + expert.to(tl.int64) * expert_stride
    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for begin in range(0, width, BLOCK):
        inner = begin + tl.arange(0, BLOCK)
        inside = real[:, None] & (inner < width)[None, :]
        tile = tl.load(x + row[:, None] * x_stride + inner[None, :], mask=inside, other=0.0)
        if KIND == 0:
            inside = (inner < width)[:, None] & (column < columns)[None, :]
            at = of_expert + column[None, :].to(tl.int64) * weight_stride + inner[:, None]
            weights = tl.load(at, mask=inside, other=0.0)
        else:
            beside = expert.to(tl.int64) * scale_expert_stride
            weights = weight_tile(
                of_expert, scales + beside, zeros + beside if KIND == 2 else zeros, column,
                begin, columns, width, weight_stride, scale_stride, GROUP, KIND, BLOCK,
            )  # fmt: skip
            weights = tl.trans(weights.to(tile.dtype))
        total = tl.dot(tile, weights, total, input_precision="ieee")
    if HAS_BIAS:
        at = bias + expert * bias_stride + column
        total += tl.load(at, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    target = place.to(tl.int64)
    if not GATHERS:
        total *= tl.load(shares + origin, mask=real, other=0.0)[:, None]
        target = origin
    inside = real[:, None] & (column < columns)[None, :]
    at = out + target[:, None] * columns + column[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=inside)


def expert_mlp(
    x: Tensor,
    gate_up: Weights,
    down: Weights,
    weights: Tensor,
    experts: Tensor,
    activation: Callable[[Tensor], Tensor],
    biases: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """See kernels.moe.naive."""
    if len(x) == 0:
        return torch.empty_like(x)
    x = x if x.stride(-1) == 1 else x.contiguous()
    spread, of_rows = experts.shape[1], experts.flatten().long()
    sorted_experts, order = of_rows.sort(stable=True)
    edges = torch.arange(gate_up.shape[0] + 1, device=x.device)
    groups = order, torch.searchsorted(sorted_experts, edges)
    up_bias, down_bias = biases or (None, None)
    inner = torch.empty((len(order), gate_up.shape[1]), dtype=x.dtype, device=x.device)
    grouped(x, gate_up, up_bias, groups, inner, (spread, None))
    # Each token's parts are added in their order, so that the sum is the same every time.
    parts = torch.zeros((len(order), x.shape[1]), dtype=torch.float32, device=x.device)
    shares = weights.float().flatten()
    grouped(activation(inner), down, down_bias, groups, parts, (spread, shares))
    return parts.view(len(x), spread, -1).sum(dim=1).to(x.dtype)


def grouped(
    x: Tensor,
    weights: Weights,
    bias: Tensor | None,
    groups: tuple[Tensor, Tensor],
    out: Tensor,
    source: tuple[int, Tensor | None],
) -> None:
    """out [R, N]: rows of x times their expert's weight [E, N, C], transposed. groups: (order,
    starts) of the rows by expert. source: (how many experts a token has, the shares of the rows);
    without shares row i of out is for token order[i] // spread of x, with them row i of x gives
    row order[i] of out, times its share."""
    (order, starts), (spread, shares) = groups, source
    tiles = tiles_of(weights)
    weight, scales = tiles.weight, tiles.scales
    experts, columns, width = len(weight), weight.shape[1], x.shape[1]
    rows = 16 if len(order) <= 16 * experts else 64
    tile = 64
    grid = (triton.cdiv(columns, tile), len(order) // rows + experts)
    _grouped_kernel[grid](
        x, weight, scales, tiles.zeros, bias, shares, order, starts, out, experts, columns, width,
        x.stride(0), *weight.stride()[:2], *scales.stride()[:2],
        0 if bias is None else bias.stride(0),
        GROUP=tiles.group,
        KIND=tiles.kind,
        SPREAD=spread,
        GATHERS=shares is None,
        HAS_BIAS=bias is not None,
        ROWS=rows,
        COLUMNS=tile,
        # A tile inside one group needs one scale a row.
        BLOCK=32 if tiles.group % 64 == 32 else 64,
    )  # fmt: skip
