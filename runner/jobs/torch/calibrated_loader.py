"""A model whose layers' maps tell what comes in, so that they can be quantized by it.

The weights stay where they lie in the file until a map is quantized. Knows no method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.backends.torch.layers.linear import Linear, RmsNorm
from runner.backends.torch.loading.rounding import is_rounded
from runner.backends.torch.loading.weights import WeightLoader
from runner.jobs.torch.hessian import InputStatistics

Tensor = Any


@dataclass(slots=True, eq=False)
class ObservedLinear(Linear):
    """Maps of the same inputs as one: names without ".weight", weights [outputs, inputs] each and
    biases [outputs], or none. inputs: gathered while it is there."""

    names: tuple[str, ...]
    weights: list[Tensor]
    biases: list[Tensor | None]
    inputs: InputStatistics | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self.inputs is not None:
            self.inputs.add(x)
        pairs = zip(self.weights, self.biases, strict=True)
        outs = [torch.nn.functional.linear(x, weight.float(), bias) for weight, bias in pairs]
        return outs[0] if len(outs) == 1 else torch.cat(outs, -1)

    def observe(self) -> None:
        """From now on what comes in counts."""
        width = self.weights[0].shape[1]
        self.inputs = InputStatistics(torch.zeros(width, width), torch.zeros(width))


@dataclass(slots=True)
class Observed:
    """The parts of a model that were taken from its file: maps in their order, norms by name."""

    maps: list[ObservedLinear] = field(default_factory=list)
    norms: dict[str, RmsNorm] = field(default_factory=dict)

    def of_layer(self, number: int) -> list[ObservedLinear]:
        """The maps of one layer."""
        part = f".layers.{number}."
        return [found for found in self.maps if part in found.names[0]]


class CalibratedLoader(WeightLoader):
    """Gives observed maps for those of layers."""

    observed: Observed

    def __init__(self, *args: Any, **options: Any) -> None:
        """See WeightLoader."""
        super().__init__(*args, **options)
        self.observed = Observed()

    def stacked(
        self,
        parts: Sequence[tuple[str, int]],
        inputs: int,
        *,
        bias: bool = False,
        fixed: bool = False,
    ) -> Linear:
        if not all(is_rounded(name) for name, _ in parts):
            return super().stacked(parts, inputs, bias=bias, fixed=fixed)
        made = ObservedLinear(
            tuple(name for name, _ in parts),
            [self.kept(f"{name}.weight", outputs, inputs) for name, outputs in parts],
            [self.tensor(f"{name}.bias", outputs) if bias else None for name, outputs in parts],
        )
        self.observed.maps.append(made)
        return made

    def norm(self, name: str, width: int, epsilon: float, offset: float = 0.0) -> RmsNorm:
        made = super().norm(name, width, epsilon, offset)
        self.observed.norms[name] = made
        return made
