"""What the gated activations mean, in PyTorch; the CPU path.

x [..., 2N] holds the gate in its first half and the up projection in its second.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def silu_mul(x: Tensor) -> Tensor:
    """silu(gate) * up [..., N] (Shazeer, GLU Variants Improve Transformer, 2020)."""
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate) * up


def gelu_mul(x: Tensor, tanh: bool = True) -> Tensor:
    """gelu(gate) * up [..., N]; tanh: the tanh approximation, else the error function."""
    gate, up = x.chunk(2, dim=-1)
    return functional.gelu(gate, approximate="tanh" if tanh else "none") * up
