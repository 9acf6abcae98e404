"""Where a model's tensors come from: a checkpoint's folder, a GGUF file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

Tensor = Any


@dataclass(frozen=True, slots=True)
class Cut:
    """Those of a tensor from start to stop in one of its dimensions."""

    dimension: int
    start: int
    stop: int

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """What is left of a tensor of this shape."""
        at = self.dimension
        return (*whole[:at], self.stop - self.start, *whole[at + 1 :])


class WeightSource(Protocol):
    """Where tensors come from. Names are those of Hugging Face checkpoints."""

    names: Collection[str]

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the tensor as read gives it, slowest dimension first. name is one of names."""

    def read(self, name: str, *, keep: bool = False, cut: Cut | None = None) -> Tensor:
        """The tensor in the machine's memory, in the type it is stored in; it may look into the
        file, whose pages leave memory at the next read unless keep says that they are used on.
        cut: only this part of it, of whole blocks where the file packs rows in blocks."""

    def rows(
        self, name: str, *, keep: bool = False, cut: Cut | None = None
    ) -> tuple[str, Tensor] | None:
        """The rows of a matrix as GGUF's block format of this name packs them, uint8 [rows, bytes
        of a row]; None where it is not packed so. keep, cut as for read."""
        return None

    def block(self, name: str) -> int:
        """How many values of a row are packed together."""
        return 1
