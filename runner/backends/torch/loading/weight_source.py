"""Where a model's tensors come from: a checkpoint's folder, a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
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


@dataclass(frozen=True, slots=True)
class MatrixPart:
    """Which part of a matrix it is that a source gives. pieces: the whole, some rows at a time.
    columns: which of its columns the part has; None: all of some rows. view: these columns in the
    file's own pages, where there are some."""

    pieces: Callable[[], Iterator[Tensor]]
    columns: range | None = None
    view: Callable[[], Tensor] | None = None


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

    def part(self, name: str) -> MatrixPart | None:
        """What part of a matrix read gives; None: all of it."""
        return None
