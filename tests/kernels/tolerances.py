"""How near a kernel must come to its meaning, by dtype, and tensors to try it on.

float16 and bfloat16: a few units in the last place of numbers of size 1 to 4. Triton's interpreter
cuts bfloat16 off where hardware rounds, which is one unit more, and its float8 conversion loses the
carry into the exponent: what is stored as float8 is compared with a relative error of 1/2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tests.properties import examples

TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
EXACT_ENOUGH = (torch.float32, torch.float16)  # for kernels with tl.dot

# The interpreter takes milliseconds for each program of a grid.
few = examples(6)


def assert_near(actual: Tensor, expected: Tensor, factor: float = 1.0) -> None:
    """actual has the shape and dtype of expected and is as near as its dtype allows."""
    bound = TOLERANCE[expected.dtype] * factor
    torch.testing.assert_close(actual, expected, rtol=bound, atol=bound)


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normally distributed numbers that depend on shape and seed only."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def apart(x: Tensor) -> Tensor:
    """The same values in memory that is not contiguous: every second row of a tensor."""
    doubled = torch.stack((x, torch.full_like(x, 7.0)), dim=1)
    return doubled[:, 0]
