"""W4A16: weights of four bits in groups, with a scale and a zero point each.

One layout for the kernels, and the ways to it from those of GPTQ, AWQ and compressed-tensors.
Source: AutoGPTQ's and AutoAWQ's packing code, compressed-tensors' pack_to_int32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from kernels.quant.packed import PackedWeight

_PER_WORD = 8
# AWQ stores the columns 0 to 7 of a word in this order of nibbles.
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


@dataclass(frozen=True, slots=True)
class Int4Weight(PackedWeight):
    """weight = (nibble - zero) * scale, [N, C].

    packed uint8 [N, C / 2], the first of two in the low nibble; scales [N, C / group] float; zeros
    uint8 [N, C / group]. order int64 [C]: which input column each stored column belongs to, where
    the columns were sorted by their group (act-order); None: as they are.
    """

    packed: Tensor
    scales: Tensor
    zeros: Tensor
    order: Tensor | None = None

    @property
    def group(self) -> int:
        """How many columns share a scale."""
        return int(2 * self.packed.shape[-1] // self.scales.shape[-1])

    def dense(self, dtype: torch.dtype) -> Tensor:
        return dequantize(self, dtype)

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        x = x if self.order is None else x[..., self.order]
        return functional.linear(x, _stored(self).to(x.dtype), bias)

    def normalized(self, *, concatenated: bool) -> Self | None:
        return self if self.order is None else None  # each map has its own order of the inputs


def from_gptq(
    qweight: Tensor, qzeros: Tensor, scales: Tensor, g_idx: Tensor | None, zero_offset: int = 1
) -> Int4Weight:
    """Of GPTQ's qweight int32 [C / 8, N], qzeros int32 [groups, N / 8], scales [groups, N], g_idx
    [C]: each column's group. zero_offset: what the stored zero points lack, 0 for gptq_v2."""
    nibbles = _unpack(qweight.T)  # [N, C]
    zeros = (_unpack(qzeros).T + zero_offset).to(torch.uint8)
    order = None
    if g_idx is not None and not _in_runs(g_idx, nibbles.shape[1] // len(scales)):
        order = g_idx.long().argsort(stable=True)
        nibbles = nibbles[:, order]
    return Int4Weight(pack(nibbles), scales.T.contiguous(), zeros.contiguous(), order)


def from_awq(qweight: Tensor, qzeros: Tensor, scales: Tensor) -> Int4Weight:
    """Of AWQ's qweight int32 [C, N / 8], qzeros int32 [groups, N / 8], scales [groups, N]."""
    nibbles, zeros = (_awq_columns(words).T.contiguous() for words in (qweight, qzeros))
    return Int4Weight(pack(nibbles), scales.T.contiguous(), zeros)


def from_compressed(
    packed: Tensor, scales: Tensor, zeros: Tensor | None, g_idx: Tensor | None = None
) -> Int4Weight:
    """Of compressed-tensors' weight_packed int32 [N, C / 8], weight_scale [N, groups],
    weight_zero_point int32 [N / 8, groups] and weight_g_idx [C]; without zeros the zero is 8."""
    nibbles = _unpack(packed)
    columns = torch.full(scales.shape, 8, dtype=torch.uint8, device=packed.device)
    if zeros is not None:
        columns = _unpack(zeros.T).T.contiguous()[: len(scales)]
    order = None
    if g_idx is not None and not _in_runs(g_idx, nibbles.shape[1] // scales.shape[1]):
        order = g_idx.long().argsort(stable=True)
        nibbles = nibbles[:, order]
    return Int4Weight(pack(nibbles), scales, columns, order)


def pack(nibbles: Tensor) -> Tensor:
    """uint8 [N, C / 2] of nibbles uint8 [N, C]."""
    return nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)


def dequantize(weight: Int4Weight, dtype: torch.dtype = torch.float32) -> Tensor:
    """The weights [N, C] in dtype, columns in the order of the input."""
    stored = _stored(weight).to(dtype)
    return stored if weight.order is None else stored[:, weight.order.argsort()]


def _stored(weight: Int4Weight) -> Tensor:
    nibbles = torch.stack((weight.packed & 15, weight.packed >> 4), dim=-1).flatten(1)
    groups = nibbles.unflatten(1, (weight.scales.shape[1], -1)).float()
    centred = groups - weight.zeros[..., None].float()
    return (centred * weight.scales[..., None].float()).flatten(1)


def _unpack(words: Tensor) -> Tensor:
    """The nibbles uint8 [R, 8 n] of words int32 [R, n], lowest first."""
    shifts = torch.arange(0, 32, 4, device=words.device)
    return ((words[..., None] >> shifts) & 15).flatten(1).to(torch.uint8)


def _awq_columns(words: Tensor) -> Tensor:
    nibbles = _unpack(words).unflatten(1, (-1, _PER_WORD))
    return nibbles[..., list(_AWQ_ORDER)].flatten(1)


def _in_runs(g_idx: Tensor, group: int) -> bool:
    """Whether the columns of each group lie side by side, the groups in order."""
    plain = torch.arange(len(g_idx), device=g_idx.device) // group
    return bool((g_idx == plain).all())
