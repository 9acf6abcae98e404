"""Which two of four weights are kept: the largest, or those that matter most for what comes in.

Source: Wanda (Sun et al., 2023, arXiv 2306.11695): a weight's size times the norm of its input; no
weight is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernels.sparse.naive import compress, dense
from runner.jobs.torch.hessian import InputStatistics

Tensor = Any


@dataclass(frozen=True, slots=True)
class SparseNumbers:
    """values [N, C / 2] and indices uint8 [N, C / 8]: see kernels/sparse/naive.py."""

    values: Tensor
    indices: Tensor

    @property
    def dense(self) -> Tensor:
        """The weights float32 [N, C]."""
        return dense(self.values, self.indices)


def sparsify(weight: Tensor, inputs: InputStatistics | None) -> SparseNumbers:
    """The weights float32 [N, C] with two of each four as zeros. inputs: None: the smallest go."""
    score = weight.abs()
    if inputs is not None:
        score = score * inputs.products.diagonal().sqrt()
    best = score.unflatten(1, (-1, 4)).topk(2, dim=-1).indices
    kept = torch.zeros(weight.shape, dtype=torch.bool).unflatten(1, (-1, 4)).scatter_(2, best, True)
    return SparseNumbers(*compress(weight, kept.flatten(1)))


def sparse_tensors(found: SparseNumbers) -> dict[str, Tensor]:
    """By what follows the map's name."""
    return {"sparse_values": found.values.half(), "sparse_indices": found.indices}
