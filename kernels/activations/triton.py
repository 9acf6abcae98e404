"""The gated activations as Triton kernels: both halves are read once, the product is written."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024
SILU, GELU_TANH, GELU = 0, 1, 2


@triton.jit
def _sigmoid(x):
    # exp(80) is near float32's largest number; further down the result is 0 anyway.
    return 1 / (1 + tl.exp(tl.minimum(-x, 80.0)))


@triton.jit
def gated(gate, up, KIND: tl.constexpr):
    """The activation of gate times up, float32."""
    if KIND == 0:
        return gate * _sigmoid(gate) * up
    if KIND == 1:
        # tanh(y) = 2 * sigmoid(2 y) - 1, so that gate * (1 + tanh(y)) / 2 = gate * sigmoid(2 y).
        inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
        return gate * _sigmoid(inner) * up
    return 0.5 * gate * (1 + tl.erf(gate * 0.7071067811865476)) * up


@triton.jit
def _gated_kernel(x, out, stride, width, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(x + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * stride + width + column, mask=inside, other=0.0).to(tl.float32)
    value = gated(gate, up, KIND)
    tl.store(out + row * width + column, value.to(out.dtype.element_ty), mask=inside)


def silu_mul(x: Tensor) -> Tensor:
    """See kernels.activations.naive."""
    return _launch(x, SILU)


def gelu_mul(x: Tensor, tanh: bool = True) -> Tensor:
    """See kernels.activations.naive."""
    return _launch(x, GELU_TANH if tanh else GELU)


def _launch(x: Tensor, kind: int) -> Tensor:
    width = x.shape[-1] // 2
    out = torch.empty(*x.shape[:-1], width, dtype=x.dtype, device=x.device)
    rows = x.reshape(-1, 2 * width)
    if rows.stride(-1) != 1:
        rows = rows.contiguous()
    if out.numel():
        grid = (len(rows), triton.cdiv(width, _BLOCK))
        _gated_kernel[grid](rows, out, rows.stride(0), width, kind, _BLOCK)
    return out
