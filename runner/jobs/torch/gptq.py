"""GPTQ: four-bit weights of which each column makes up for the rounding of those before it.

Source: Frantar et al., 2022 (arXiv 2210.17323), with a Cholesky factor of the inverse as there, in
the order of the columns. The zero points are 1 to 15: the format stores them less one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernels.quant.rounding import int4_scales
from runner.jobs.torch.hessian import InputStatistics

Tensor = Any
_BLOCK = 128  # columns between which errors are handed on at once


@dataclass(frozen=True, slots=True)
class Int4Numbers:
    """weight = (numbers - zeros) * scales: numbers uint8 [N, C]; zeros uint8 and scales float32, as
    float16 has them, [N, C / group]."""

    numbers: Tensor
    zeros: Tensor
    scales: Tensor

    @property
    def dense(self) -> Tensor:
        """The weights float32 [N, C]."""
        wide = self.numbers.unflatten(1, (self.scales.shape[1], -1)).float()
        return ((wide - self.zeros[..., None].float()) * self.scales[..., None]).flatten(1)


def gptq(weight: Tensor, inputs: InputStatistics, group: int) -> Int4Numbers:
    """The four-bit numbers of weight float32 [N, C] for inputs that were so; group divides C and
    128, or is a multiple of it."""
    factor = inputs.inverse_factor()
    turned = weight.t().clone(memory_format=torch.contiguous_format)  # each column in one piece
    turned[inputs.products.diagonal() == 0] = 0  # nothing ever came in there
    columns, rows = turned.shape
    numbers = torch.empty(columns, rows, dtype=torch.uint8)
    scales, zeros = (torch.empty(columns // group, rows) for _ in range(2))
    for start in range(0, columns, _BLOCK):
        end = min(start + _BLOCK, columns)
        errors = torch.empty(end - start, rows)
        for column, error in enumerate(errors, start):
            of = column // group
            if column % group == 0:
                scales[of], zeros[of] = group_scales(turned[column : column + group].t())
            found = _rounded(turned[column], scales[of], zeros[of])
            numbers[column] = found
            worth = found.sub_(zeros[of]).mul_(scales[of])
            torch.sub(turned[column], worth, out=error).div_(factor[column, column])
            turned[column:end].addr_(factor[column, column:end], error, alpha=-1)
        turned[end:].addmm_(factor[start:end, end:].t(), errors, alpha=-1)
    return Int4Numbers(
        numbers.t().contiguous(), zeros.t().to(torch.uint8).contiguous(), scales.t().contiguous()
    )


def to_nearest(weight: Tensor, group: int) -> Int4Numbers:
    """The same of weights rounded to the nearest, each by itself."""
    wide = weight.unflatten(1, (-1, group))
    scales, zeros = group_scales(wide)
    found = _rounded(wide, scales[..., None], zeros[..., None])
    return Int4Numbers(found.flatten(1).to(torch.uint8), zeros.to(torch.uint8), scales)


def group_scales(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(scales, zero points) [...] of groups [..., G]."""
    scales, zeros = int4_scales(weight)
    return scales, zeros.clamp_(min=1)


def _rounded(weight: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return (weight / scale).round_().add_(zero).clamp_(0, 15)
