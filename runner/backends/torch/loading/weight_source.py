"""Where a model's tensors come from: a checkpoint's folder, a GGUF file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

Tensor = Any


class WeightSource(Protocol):
    """Where tensors come from. Names are those of Hugging Face checkpoints."""

    names: Collection[str]

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the tensor as read gives it, slowest dimension first. name is one of names."""

    def read(self, name: str, *, keep: bool = False) -> Tensor:
        """The tensor in the machine's memory, in the type it is stored in; it may look into the
        file, whose pages leave memory at the next read unless keep says that they are used on."""

    def rows(self, name: str, *, keep: bool = False) -> tuple[str, Tensor] | None:
        """The rows of a matrix as GGUF's block format of this name packs them, uint8 [rows, bytes
        of a row]; None where it is not packed so. keep as for read."""
        return None
