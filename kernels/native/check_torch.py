"""`python -m kernels.native.check_torch LIBRARY`: does the torch backend's library compute what it
should on this machine? See check.py."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from kernels.native.linear import F8, I8, Matrices, TorchKernels

CLOSE = 0.02  # of the largest value: with allow_bf16 factors are rounded


def check_linear(library: Path) -> bool:
    """Whether products come out right by weights of each type, for odd shapes too."""
    kernels, random = TorchKernels(library), torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for rows, k, columns in ((64, 256, 1), (37, 1057, 5), (100, 2100, 40)):
            weight = torch.randn(rows, k, generator=random).to(dtype)
            x = torch.randn(columns, k, generator=random)
            expected = x @ weight.float().t()
            matrices = Matrices(kernels, [weight], [None])
            for allow_bf16 in (False, True):
                found = matrices.multiply(x, dtype=torch.float32, allow_bf16=allow_bf16)
                if not (found - expected).abs().max() < CLOSE * expected.abs().max():
                    return False
    return all(check_rounded(kernels, columns, random) for columns in (1, 5, 40))


def check_rounded(kernels: TorchKernels, columns: int, random: torch.Generator) -> bool:
    """Whether products by numbers of eight bits come out right."""
    numbers = torch.randint(-127, 128, (37, 1057), generator=random).to(torch.int8)
    x = torch.randn(columns, 1057, generator=random)
    for weight, kind in ((numbers, I8), (numbers.float().to(torch.float8_e4m3fn), F8)):
        expected = x @ weight.float().t()
        found = Matrices(kernels, [weight], [kind]).multiply(x, dtype=torch.float32)
        if not (found - expected).abs().max() < CLOSE * expected.abs().max():
            return False
    return True


if __name__ == "__main__":
    sys.exit(0 if check_linear(Path(sys.argv[1])) else 1)
