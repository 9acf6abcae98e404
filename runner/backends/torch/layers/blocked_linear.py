"""Linear maps on a CPU whose weights are in the layout that oneDNN multiplies from: the way where
hearth's own kernels (native_linear.py) were not compiled.

With plain weights torch has them put into that layout again at each call. Measured on one Zen 5
core: [512, 256] by one row takes 13 µs so and 33 µs plain, [4096, 1024] by eight rows on two
cores 0.2 and 0.35 ms, by 256 rows the same. Knows no names of checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from runner.backends.torch.layers.linear import Linear

Tensor = Any
# The layout is chosen for so many rows. Those that suit one row only make products of two cores
# with one row slower than with plain weights.
_ROWS = 32


@dataclass(frozen=True, slots=True)
class BlockedLinear(Linear):
    """weight as blocked gives it, of type dtype; bias [outputs] in the type of the inputs. Inputs
    and outputs are rounded to dtype, sums are not."""

    weight: Tensor
    bias: Tensor | None = None
    dtype: Any = torch.bfloat16

    def __call__(self, x: Tensor) -> Tensor:
        narrow = x.to(self.dtype)
        if narrow is x:
            return _multiply()(x, self.weight, self.bias, "none", [], "")
        out = _multiply()(narrow, self.weight, None, "none", [], "").to(x.dtype)
        return out if self.bias is None else out + self.bias


def can_block(weight: Tensor) -> bool:
    """Whether weight [outputs, inputs] can be multiplied from that layout here."""
    return (
        weight.device.type == "cpu"
        and weight.dtype in (torch.bfloat16, torch.float32)
        and weight.numel() > 0
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


def to_blocked(weight: Tensor) -> Tensor:
    """A copy of weight [outputs, inputs] in that layout, which nothing else can read."""
    return torch.ops.mkldnn._reorder_linear_weight.default(weight, _ROWS)


@cache
def _multiply() -> Any:
    return torch.ops.mkldnn._linear_pointwise.default
