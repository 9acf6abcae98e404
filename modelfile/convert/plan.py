"""An architecture's description of a checkpoint: which tensors it has and how each is converted.

A plan is made from config.json alone, so that everything can be checked before a byte is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from modelfile.convert.metadata import MetadataValue


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor of the GGUF file.

    name: the checkpoint's name for it, which gguf's tensor map knows. shape: of each source,
    slowest dimension first. sources: the tensors stacked in it where that is not name alone.
    rotary_heads: the heads of a query or key projection whose halves llama.cpp wants interleaved.
    shift: added to each value. skipped_rows: rows at the beginning that are left out.
    """

    name: str
    shape: tuple[int, ...]
    sources: tuple[str, ...] | None = None
    rotary_heads: int | None = None
    shift: float = 0.0
    skipped_rows: int = 0

    @property
    def source_names(self) -> tuple[str, ...]:
        """The tensors of the checkpoint that it is made of."""
        return (self.name,) if self.sources is None else self.sources

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Its shape in the GGUF file, slowest dimension first."""
        shape = (self.shape[0] - self.skipped_rows, *self.shape[1:])
        return shape if self.sources is None else (len(self.sources), *shape)


@dataclass(frozen=True, slots=True)
class ComputedWeight:
    """A tensor that the checkpoint does not have. name: in the GGUF file."""

    name: str
    values: tuple[float, ...] | NDArray[np.float32]


def _unchanged(name: str) -> str | None:
    return name


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """architecture: the GGUF name. rename: from the checkpoint's names to those of the weights,
    None for a tensor that is not wanted. embeds: True where the output is a vector, not a token;
    ranks: where it is a score."""

    architecture: str
    vocabulary_size: int
    block_count: int
    metadata: tuple[MetadataValue, ...]
    weights: tuple[Weight, ...]
    computed: tuple[ComputedWeight, ...] = ()
    rename: Callable[[str], str | None] = field(default=_unchanged)
    expert_count: int | None = None
    embeds: bool = False
    ranks: bool = False

    def source_names(self) -> Iterator[str]:
        """All tensors that the checkpoint must have, as rename gives them."""
        for weight in self.weights:
            yield from weight.source_names
