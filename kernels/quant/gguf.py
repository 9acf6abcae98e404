"""GGUF's block formats Q4_0, Q8_0, Q4_K, Q5_K and Q6_K in PyTorch: what their bytes mean.

A row of C weights is C / block_weights blocks of block_bytes, as in the file. Source: ggml-quants.h
of llama.cpp; tested against the gguf package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kernels.quant.packed import PackedWeight

# As many weights are dequantized at a time on the CPU, to stay in its cache (4 MB in float32).
WEIGHTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """One format: how many weights a block holds, in how many bytes, and what they are:
    blocks uint8 [n, block_bytes] -> float32 [n, block_weights]."""

    block_weights: int
    block_bytes: int
    unpack: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class GgufWeight(PackedWeight):
    """Rows uint8 [N, bytes of a row] in the format kind."""

    rows: Tensor
    kind: str

    def dense(self, dtype: torch.dtype) -> Tensor:
        return dequantize(self.rows, self.kind).to(dtype)

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return linear(x, self.rows, self.kind, bias)


def dequantize(packed: Tensor, kind: str) -> Tensor:
    """The weights, float32 [rows, C], of packed uint8 [rows, row_bytes] of the format kind, such
    as "Q4_K". ValueError: an unknown format, or rows that hold no whole number of blocks."""
    block = block_format(kind)
    if packed.shape[-1] % block.block_bytes:
        raise ValueError(
            f"a row of {packed.shape[-1]} bytes is not a whole number of {kind} blocks"
            f" of {block.block_bytes} bytes"
        )
    blocks = packed.contiguous().view(-1, block.block_bytes)
    width = packed.shape[-1] // block.block_bytes * block.block_weights
    return block.unpack(blocks).view(*packed.shape[:-1], width)


def block_format(kind: str) -> BlockFormat:
    """The format of that name. ValueError: there is none."""
    if kind not in FORMATS:
        raise ValueError(f"GGUF format {kind!r} is not supported; these are: {', '.join(FORMATS)}")
    return FORMATS[kind]


def linear(x: Tensor, packed: Tensor, kind: str, bias: Tensor | None) -> Tensor:
    """x [..., C] times the packed [N, row_bytes] weights, transposed, plus bias [N]."""
    width = packed.shape[-1] // block_format(kind).block_bytes * block_format(kind).block_weights
    rows = max(1, WEIGHTS_AT_ONCE // max(1, width))
    parts = [
        functional.linear(x, dequantize(part, kind).to(x.dtype)) for part in packed.split(rows)
    ]
    result = torch.cat(parts, dim=-1)
    return result if bias is None else result + bias


def _halves(data: Tensor) -> Tensor:
    """Bytes [n, 2 m] as float16 numbers, in float32 [n, m]."""
    return data.contiguous().view(torch.float16).float()


def _nibbles(data: Tensor, run: int) -> Tensor:
    """The low nibbles of each run of bytes, then their high ones: [n, bytes / run, 2, run]."""
    runs = data.unflatten(1, (-1, 1, run))
    return torch.cat((runs & 15, runs >> 4), dim=2)


def _q4_0(blocks: Tensor) -> Tensor:
    scale, quants = _halves(blocks[:, :2]), _nibbles(blocks[:, 2:], 16).flatten(1)
    return (quants.float() - 8) * scale


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].contiguous().view(torch.int8).float() * _halves(blocks[:, :2])


def _k_scales(data: Tensor) -> tuple[Tensor, Tensor]:
    """The eight 6-bit scales and the eight 6-bit minima [n, 8] of 12 bytes [n, 12]."""
    low, middle, high = data.unflatten(1, (3, 4)).unbind(1)
    scales = torch.cat((low & 63, (high & 15) | ((low >> 2) & 48)), dim=1)
    minima = torch.cat((middle & 63, (high >> 4) | ((middle >> 2) & 48)), dim=1)
    return scales.float(), minima.float()


def _k_affine(blocks: Tensor, quants: Tensor) -> Tensor:
    """scale * quant - minimum of the quants [n, 8, 32] of Q4_K and Q5_K."""
    factors = _halves(blocks[:, :4])
    scales, minima = _k_scales(blocks[:, 4:16])
    scales, minima = scales * factors[:, :1], minima * factors[:, 1:]
    return (quants.float() * scales[..., None] - minima[..., None]).flatten(1)


def _q4_k(blocks: Tensor) -> Tensor:
    return _k_affine(blocks, _nibbles(blocks[:, 16:], 32).flatten(1, 2))


def _q5_k(blocks: Tensor) -> Tensor:
    shifts = torch.arange(8, dtype=torch.uint8, device=blocks.device)[:, None]
    fifth = (blocks[:, 16:48, None].transpose(1, 2) >> shifts) & 1  # [n, 8, 32]
    return _k_affine(blocks, _nibbles(blocks[:, 48:], 32).flatten(1, 2) | (fifth << 4))


def _q6_k(blocks: Tensor) -> Tensor:
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8, device=blocks.device)[:, None]
    upper = (blocks[:, 128:192].unflatten(1, (2, 1, 32)) >> shifts) & 3  # [n, 2, 4, 32]
    lower = _nibbles(blocks[:, :128], 64).view(-1, 2, 4, 32)
    quants = (lower | (upper << 4)).view(-1, 16, 16).float() - 32
    scales = blocks[:, 192:208].contiguous().view(torch.int8).float() * _halves(blocks[:, 208:])
    return (quants * scales[..., None]).flatten(1)


FORMATS: dict[str, BlockFormat] = {
    "Q4_0": BlockFormat(32, 18, _q4_0),
    "Q8_0": BlockFormat(32, 34, _q8_0),
    "Q4_K": BlockFormat(256, 144, _q4_k),
    "Q5_K": BlockFormat(256, 176, _q5_k),
    "Q6_K": BlockFormat(256, 210, _q6_k),
}
