"""The norms as Triton kernels: several rows a program, each read once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# A program has at least this many elements, so that short rows (heads) share one.
_ELEMENTS = 2048


@triton.jit
def _rms_norm_kernel(
    x,
    residual,
    weight,
    out,
    total,
    rows,
    heads,
    stride_token,
    stride_head,
    width,
    eps,
    offset,
    ADDS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    at = row // heads * stride_token + row % heads * stride_head + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    flat = row * width + column
    if ADDS:
        value += tl.load(residual + flat, mask=inside, other=0.0).to(tl.float32)
        rounded = value.to(total.dtype.element_ty)
        tl.store(total + flat, rounded, mask=inside)
        value = rounded.to(tl.float32)
    inverse = tl.rsqrt(tl.sum(value * value, axis=1) / width + eps)[:, None]
    scale = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32) + offset
    tl.store(out + flat, (value * inverse * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _layer_norm_kernel(
    x, weight, bias, out, rows, width, eps, HAS_BIAS: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    at = row * width + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, value - (tl.sum(value, axis=1) / width)[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, axis=1) / width + eps)[:, None]
    scaled = centred * inverse
    scaled *= tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    if HAS_BIAS:
        scaled += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
    tl.store(out + at, scaled.to(out.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """See kernels.norms.naive. Heads of a wider row are read in place."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, None, weight, (out, out), eps, offset)
    return out


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """See kernels.norms.naive."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = torch.empty_like(out)
    _launch(x, residual.contiguous(), weight, (out, total), eps, offset)
    return out, total


def _launch(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    outs: tuple[Tensor, Tensor],
    eps: float,
    offset: float,
) -> None:
    width = x.shape[-1]
    tokens = x if x.ndim == 3 else x.reshape(-1, 1, width)
    if tokens.stride(-1) != 1:
        tokens = tokens.contiguous()
    rows = tokens.shape[0] * tokens.shape[1]
    if rows == 0:
        return
    block, at_once = _tile(width)
    _rms_norm_kernel[(triton.cdiv(rows, at_once),)](
        tokens,
        residual,
        weight,
        *outs,
        rows,
        tokens.shape[1],
        *tokens.stride()[:2],
        width,
        eps,
        offset,
        ADDS=residual is not None,
        ROWS=at_once,
        BLOCK=block,
    )


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """See kernels.norms.naive."""
    x, width = x.contiguous(), x.shape[-1]
    out, rows = torch.empty_like(x), x.numel() // x.shape[-1]
    block, at_once = _tile(width)
    if rows:
        _layer_norm_kernel[(triton.cdiv(rows, at_once),)](
            x, weight, bias, out, rows, width, eps, bias is not None, at_once, block
        )
    return out


def _tile(width: int) -> tuple[int, int]:
    block = triton.next_power_of_2(width)
    return block, max(1, _ELEMENTS // block)
