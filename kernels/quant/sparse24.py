"""Weights of which two of four are zero, as floats with where they stood. See kernels/sparse."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.quant.packed import PackedWeight
from kernels.sparse import naive


@dataclass(frozen=True, slots=True)
class Sparse24Weight(PackedWeight):
    """values [N, C / 2] of floats, indices uint8 [N, C / 8]."""

    values: Tensor
    indices: Tensor

    def dense(self, dtype: torch.dtype) -> Tensor:
        return naive.dense(self.values, self.indices).to(dtype)

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        out = naive.sparse_linear(x.flatten(0, -2), self.values, self.indices, bias)
        return out.view(*x.shape[:-1], len(self.values))

    def semi_structured(self, dtype: torch.dtype) -> Tensor:
        """The same as a tensor that torch multiplies without the zeros. A CUDA device of compute
        capability 8.0 or more, and shapes that its kernels take. Raises what torch raises."""
        packed: Tensor = torch.sparse.to_sparse_semi_structured(self.dense(dtype))
        return packed

    def in_dtype(self, dtype: torch.dtype) -> Sparse24Weight:
        """The same with values of dtype."""
        return replace(self, values=self.values.to(dtype))
