"""Weights that stay quantized, whatever their format: one of them, or a stack for the experts of a
mixture, which has one more dimension in front. Knows no format; each has its module beside this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """Weights [N, C] in tensors that begin with the dimension N, or [E, N, C] with E and N."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What they are made of, by the names of the fields."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    @property
    def shape(self) -> torch.Size:
        """That of the first tensor: N or E and N, and what a row takes."""
        return next(iter(self.tensors.values())).shape

    def __getitem__(self, expert: int) -> Self:
        """The weights [N, C] of one expert of a stack."""
        return replace(self, **{name: part[expert] for name, part in self.tensors.items()})

    def dense(self, dtype: torch.dtype) -> Tensor:
        """The weights [N, C] in dtype."""
        raise NotImplementedError

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [..., C] times the weights [N, C], transposed, plus bias [N]."""
        return functional.linear(x, self.dense(x.dtype), bias)

    def normalized(self, *, concatenated: bool) -> Self | None:
        """The same weights in the form in which those of several maps can be put together, below
        each other or in a stack; None: they cannot."""
        return self


def concatenate(weights: Sequence[PackedWeight]) -> PackedWeight | None:
    """The weights of several maps of the same inputs below each other; None where they are not
    packed alike."""
    return _combined([weight.normalized(concatenated=True) for weight in weights], torch.cat, 1)


def stack(weights: Sequence[PackedWeight]) -> PackedWeight | None:
    """The weights of several maps as a stack; None where they are not packed alike."""
    return _combined([weight.normalized(concatenated=False) for weight in weights], torch.stack, 0)


def _combined(
    parts: Sequence[PackedWeight | None], put: Callable[[list[Tensor]], Tensor], common: int
) -> PackedWeight | None:
    """common: the first of the dimensions in which they must be the same."""
    alike = [part for part in parts if part is not None]
    first = parts[0]
    if first is None or len(alike) < len(parts) or len({_form(part, common) for part in alike}) > 1:
        return None
    return replace(
        first, **{name: put([part.tensors[name] for part in alike]) for name in first.tensors}
    )


def _form(weight: PackedWeight, common: int) -> tuple[Any, ...]:
    """What must be the same of weights that are put together."""
    values = (getattr(weight, field.name) for field in fields(weight))
    return type(weight), *(
        (value.dtype, value.shape[common:]) if isinstance(value, Tensor) else value
        for value in values
    )
