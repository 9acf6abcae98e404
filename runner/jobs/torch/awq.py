"""AWQ: four-bit weights whose columns are scaled by how large their inputs are, so that what
matters is rounded finely; what comes before the map is divided by the same.

Source: Lin et al., 2023 (arXiv 2306.00978): a search over the power of the inputs' mean size, then
one over how much of each group's range is cut off. Errors are those of the outputs, from the sum of
the inputs' products (hessian.py) and not from a sample of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from runner.jobs.torch.gptq import Int4Numbers, to_nearest
from runner.jobs.torch.hessian import InputStatistics

Tensor = Any
_POWERS = 20
_CUTS = tuple(1 - step / 20 for step in range(10))  # of a group's range: all to 0.55 of it
_ROWS = 256  # of weights whose groups' errors are computed at once


def column_scales(weights: Sequence[Tensor], inputs: InputStatistics, group: int) -> Tensor:
    """What the columns of maps [N, C] of the same inputs are to be multiplied by, [C]: ones where
    nothing is better."""
    sizes = inputs.sizes / max(1, inputs.count)
    best, least = torch.ones_like(sizes), float("inf")
    for step in range(_POWERS):
        scales = sizes.pow(step / _POWERS).clamp_(min=1e-4)
        scales /= (scales.max() * scales.min()).sqrt()
        lost = 0.0
        for weight in weights:
            apart = to_nearest(weight * scales, group).dense.div_(scales).sub_(weight)
            lost += float(inputs.error(apart).sum())
        if lost < least:
            best, least = scales, lost
    return best


def awq(weight: Tensor, inputs: InputStatistics, group: int, *, cut: bool = True) -> Int4Numbers:
    """The four-bit numbers of weight float32 [N, C], whose columns were scaled. cut: the largest of
    each group may be cut off."""
    return to_nearest(_cut(weight, inputs, group) if cut else weight, group)


def _cut(weight: Tensor, inputs: InputStatistics, group: int) -> Tensor:
    """weight with each group's largest numbers cut off where that loses least."""
    of_groups = inputs.products.unflatten(0, (-1, group)).unflatten(2, (-1, group))
    of_groups = of_groups.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # [groups, G, G]
    parts = []
    for rows in weight.split(_ROWS):
        wide = rows.unflatten(1, (-1, group))
        largest = wide.abs().amax(-1, keepdim=True)
        best, least = wide.clone(), torch.full(wide.shape[:2], float("inf"))
        for share in _CUTS:
            limited = wide.clamp(-largest * share, largest * share)
            apart = to_nearest(limited.flatten(1), group).dense.view_as(wide) - wide
            lost = (torch.einsum("ngi,gij->ngj", apart, of_groups) * apart).sum(-1)
            better = lost < least
            best = torch.where(better[..., None], limited, best)
            least = torch.where(better, lost, least)
        parts.append(best.flatten(1))
    return torch.cat(parts)
