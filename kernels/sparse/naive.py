"""2:4 sparsity: of four neighbouring weights of a row two are kept, with where they stood.

values [N, C / 2]; indices uint8 [N, C / 8]: two bits for each value, the first lowest, so that a
byte belongs to eight weights. A GPU of compute capability 8.0 multiplies such weights without the
zeros, see torch.sparse.to_sparse_semi_structured; here only what is kept is multiplied. Source:
Mishra et al., 2021 (arXiv 2104.08378).
"""

from __future__ import annotations

import torch
from torch import Tensor

_PRODUCTS_AT_ONCE = 1 << 22


def compress(weight: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """(values, indices) of weight [N, C]; kept bool [N, C]: two of each four. Raises ValueError for
    another number of them, and for rows that eight does not divide."""
    rows, columns = weight.shape
    if columns % 8:
        raise ValueError(f"rows of {columns} weights, no multiple of 8")
    of_four = kept.unflatten(1, (-1, 4))
    if not bool((of_four.sum(-1) == 2).all()):
        raise ValueError("not two of each four weights are kept")
    # Stable and descending: the two that are kept come first, in their order.
    places = of_four.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[..., :2]
    values = weight.unflatten(1, (-1, 4)).gather(2, places).flatten(1)
    pairs = places[..., 0] | (places[..., 1] << 2)
    halves = pairs.view(rows, -1, 2)
    return values, (halves[..., 0] | (halves[..., 1] << 4)).to(torch.uint8)


def columns_of(indices: Tensor) -> Tensor:
    """int64 [N, C / 2]: the column of each value."""
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8, device=indices.device)
    places = ((indices[..., None] >> shifts) & 3).flatten(1).long()
    return places + torch.arange(places.shape[1], device=indices.device) // 2 * 4


def dense(values: Tensor, indices: Tensor) -> Tensor:
    """The weights [N, C], zeros and all."""
    rows, half = values.shape
    whole = torch.zeros((rows, 2 * half), dtype=values.dtype, device=values.device)
    return whole.scatter_(1, columns_of(indices), values)


def sparse_linear(x: Tensor, values: Tensor, indices: Tensor, bias: Tensor | None) -> Tensor:
    """x [T, C] times the weights [N, C], transposed, plus bias [N]: half of the products."""
    columns, parts = columns_of(indices), []
    rows = max(1, _PRODUCTS_AT_ONCE // max(1, x.shape[0] * values.shape[1]))
    for part, places in zip(values.split(rows), columns.split(rows), strict=True):
        parts.append((x[:, places].float() * part.float()).sum(-1))
    out = torch.cat(parts, dim=-1).to(x.dtype)
    return out if bias is None else out + bias
