"""The parts that decoders are made of: linear maps, embeddings, norms.

Each holds its weights on the device and computes through kernels.ops. Knows no names of
checkpoints and no architecture; which kind of linear map a checkpoint has, loading/weights.py
says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernels import ops
from kernels.quant.gguf import dequantize

Tensor = Any


class Linear(Protocol):
    """A linear map from [T, inputs] to [T, outputs]."""

    def __call__(self, x: Tensor) -> Tensor:
        """The outputs [T, outputs] of x [T, inputs], in its dtype."""


@dataclass(frozen=True, slots=True)
class DenseLinear(Linear):
    """weight [outputs, inputs] and bias [outputs] as they are."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class TransposedLinear(Linear):
    """The same by weight [inputs, outputs]. In float32 on a CPU a step of one token takes 0.68 ms
    for ember so and 0.82 ms the other way, one of 256 the same."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return torch.mm(x, self.weight)
        return torch.addmm(self.bias, x, self.weight)


@dataclass(frozen=True, slots=True)
class Bfloat16Linear(Linear):
    """weight [outputs, inputs] in bfloat16 for inputs in float32. Inputs and outputs are rounded
    to it, sums are not. On a CPU with AVX512-BF16 a step of 8 tokens takes 0.8 ms for ember so and
    2.0 ms in float32, one of 32 tokens 1.3 and 4.7 ms."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.nn.functional.linear(x.to(self.weight.dtype), self.weight).to(x.dtype)
        return out if self.bias is None else out + self.bias


@dataclass(frozen=True, slots=True)
class ConcatenatedLinear(Linear):
    """Several maps of the same inputs, their outputs one after the other."""

    parts: Sequence[Linear]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], dim=-1)


PlacedVectors = tuple[int, Tensor]  # [n, hidden] in place of the embeddings from a token on


@dataclass(frozen=True, slots=True)
class TokenEmbedding:
    """One row of weight [vocabulary, hidden] a token, in dtype, that of the weight if None; scale,
    a number that dtype has, multiplies it (Gemma). kind: weight is uint8 [vocabulary, bytes of a
    row] in this format of GGUF."""

    weight: Tensor
    scale: float | None = None
    dtype: Any = None
    kind: str | None = None

    def __call__(self, tokens: Tensor, vectors: Sequence[PlacedVectors] = ()) -> Tensor:
        """The rows [T, hidden] of tokens [T] int64, with vectors in their places."""
        rows = self.weight.index_select(0, tokens)
        rows = rows if self.kind is None else dequantize(rows, self.kind)
        rows = rows if self.dtype is None else rows.to(self.dtype)
        rows = rows if self.scale is None else rows * self.scale
        for start, given in vectors:
            rows[start : start + len(given)] = given.to(rows)
        return rows


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Root mean square norm over the last dimension (Zhang and Sennrich, 2019). offset: added to
    the weight, 1 where it is stored as its difference from one (Gemma)."""

    weight: Tensor
    epsilon: float
    offset: float = 0.0

    def __call__(self, x: Tensor) -> Tensor:
        """The normed x, in its shape and dtype."""
        return ops.rms_norm(x, self.weight, self.epsilon, offset=self.offset)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The normed sum of x and residual, and the sum."""
        normed, total = ops.add_rms_norm(x, residual, self.weight, self.epsilon, offset=self.offset)
        return normed, total
