"""What a map's inputs were on a text: the sum of their products with each other, and their sizes.

E = W' - W changes the outputs of all those inputs by trace(E H E^T), where H is that sum: an error
of weights is measured so without the inputs themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

Tensor = Any
_DAMPING = 0.01  # of the mean of the diagonal


@dataclass(slots=True)
class InputStatistics:
    """products float32 [C, C]: the sum of x^T x; sizes [C]: that of |x|; count: of tokens."""

    products: Tensor
    sizes: Tensor
    count: int = 0
    _factor: Tensor | None = None

    def add(self, x: Tensor) -> None:
        """x [T, C] came in."""
        wide = x.float()
        self.products.addmm_(wide.t(), wide)
        self.sizes += wide.abs().sum(0)
        self.count += len(x)
        self._factor = None

    def divided(self, scales: Tensor) -> InputStatistics:
        """Of the inputs divided by scales [C]."""
        products = self.products / (scales[:, None] * scales)
        return InputStatistics(products, self.sizes / scales, self.count)

    def inverse_factor(self) -> Tensor:
        """The upper Cholesky factor [C, C] of the inverse of the damped products, computed once."""
        if self._factor is None:
            damped = self.products.clone()
            diagonal = damped.diagonal()
            diagonal[diagonal == 0] = 1
            diagonal += _DAMPING * diagonal.mean()
            inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
            self._factor = torch.linalg.cholesky(inverse, upper=True)
        return self._factor

    def error(self, apart: Tensor) -> Tensor:
        """What weights that are apart [N, C] from what they were change of the outputs: the sum of
        squares, [N]."""
        return ((apart @ self.products) * apart).sum(1)
