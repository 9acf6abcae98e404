"""Linear maps on a CPU by hearth's own kernels, which multiply weights where and as they lie.

Nothing is put into another layout, so that a file's pages are the weights. Knows no names of
checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kernels.native.linear import Matrices, TorchKernels, torch_kernels
from runner.backends.torch.layers.linear import Linear

Tensor = Any
_COMPUTED = (torch.float32, torch.bfloat16)


class WeightRows(NamedTuple):
    """The weights of a map [outputs, inputs], or uint8 [outputs, bytes of a row] in GGUF's format
    kind."""

    weight: Tensor
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class NativeLinear(Linear):
    """bias [outputs]. narrow: inputs and weights may be rounded to bfloat16. dtype: of the outputs,
    None: that of the inputs."""

    matrices: Matrices
    bias: Tensor | None = None
    narrow: bool = False
    dtype: Any = None

    def __call__(self, x: Tensor) -> Tensor:
        out = self.matrices.multiply(x, dtype=self.dtype or x.dtype, allow_bf16=self.narrow)
        return out if self.bias is None else out.add_(self.bias)


def native_kernels(dtype: Any, device: Any) -> TorchKernels | None:
    """Those that compute in dtype on the device; None: there are none."""
    return torch_kernels() if device.type == "cpu" and dtype in _COMPUTED else None


def create_matrices(found: TorchKernels, parts: Sequence[WeightRows]) -> Matrices:
    """Maps of the same inputs as one. Raises ValueError for weights that are not multiplied so."""
    return Matrices(found, [part.weight for part in parts], [part.kind for part in parts])
