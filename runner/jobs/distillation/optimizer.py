"""Muon for the hidden matrices, AdamW for the rest, and the learning-rate schedule.

Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon): momentum whose matrix is replaced by
its nearest
orthogonal matrix, found with five Newton-Schulz steps. It needs about half the tokens of AdamW
here.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer


def orthogonalised(matrix: Tensor) -> Tensor:
    """The orthogonal matrix nearest to `matrix` `[rows, columns]`, about; singular values end in
    0.7 to 1.2.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = (x / (x.norm() + 1e-7)).bfloat16()
    for _ in range(5):
        square = x @ x.T
        mixed = torch.addmm(square, square, square, beta=b, alpha=c)
        x = torch.addmm(x, mixed, x, beta=a)
    return (x.T if tall else x).to(matrix.dtype)


class Muon(Optimizer):  # type: ignore[misc]
    """Orthogonalised momentum with decoupled weight decay, for two-dimensional weights."""

    def __init__(
        self,
        weights: Iterable[Tensor],
        learning_rate: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(
            weights, {"lr": learning_rate, "momentum": momentum, "weight_decay": weight_decay}
        )

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: None = None) -> None:
        """Change the weights by one step."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["average"] = torch.zeros_like(weight)
                average: Tensor = state["average"]
                average.lerp_(weight.grad, 1 - group["momentum"])
                update = orthogonalised(weight.grad.lerp(average, group["momentum"]))
                scale = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
                weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(
                    update, alpha=-group["lr"] * scale
                )


def optimizers(
    network: nn.Module, matrix_rate: float = 0.015, vector_rate: float = 0.003
) -> list[Optimizer]:
    """Muon for matrices inside the blocks, AdamW for embeddings and norms."""
    matrices = [
        w for name, w in network.named_parameters() if name.startswith("blocks") and w.ndim == 2
    ]
    others = [
        w
        for name, w in network.named_parameters()
        if not (name.startswith("blocks") and w.ndim == 2)
    ]
    return [
        Muon(matrices, matrix_rate),
        AdamW(others, lr=vector_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def rate_factor(step: int, steps: int, warm_up: float = 0.01) -> float:
    """Factor on the learning rates: a short warm-up, a straight fall to 0.13 over three quarters
    of the steps, a slower one to zero over the rest.
    """
    knee, slope = 0.7625 * steps, 0.875 * steps
    if step <= knee:
        return min(step / slope / warm_up, 1.0 - step / slope)
    return (1.0 - knee / slope) * (steps - step) / (steps - knee)
