"""The layers whose ranks exchange something, around those that each has of its own. Names of the
splits: Megatron-LM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.backends.torch.attention.paged import AttentionStep
from runner.backends.torch.layers.decoder import (
    Embedding,
    LanguageModel,
    TransformerLayer,
    run_layers,
)
from runner.backends.torch.layers.linear import Linear, PlacedVectors, RmsNorm, TokenEmbedding
from runner.backends.torch.parallel.communication import Communicator

Tensor = Any


@dataclass(frozen=True, slots=True)
class Summed(Linear):
    """The sum of what the ranks make of the same x, or this rank's rows of it: of a map of which
    each has some of the inputs and the first one the bias, or of a mixture of which each has some
    of the experts."""

    part: Linear
    communicator: Communicator

    def __call__(self, x: Tensor) -> Tensor:
        return self.communicator.sum(self.part(x))


@dataclass(frozen=True, slots=True)
class GatheredNorm(RmsNorm):
    """A norm of this rank's rows, which gives those of all to the split maps behind it."""

    communicator: Communicator = field(kw_only=True)

    def __call__(self, x: Tensor) -> Tensor:
        return self.communicator.whole(RmsNorm.__call__(self, x))

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The normed sum of all rows, and the sum of this rank's."""
        normed, total = RmsNorm.add(self, x, residual)
        return self.communicator.whole(normed), total


@dataclass(frozen=True, slots=True)
class VocabularyParallelEmbedding:
    """An embedding of which each rank has the rows of some tokens, from first on."""

    part: TokenEmbedding
    first: int
    communicator: Communicator

    def __call__(self, tokens: Tensor, vectors: Sequence[PlacedVectors] = ()) -> Tensor:
        """This rank's rows [R, hidden] of the states of tokens [T] int64, whose step begins."""
        self.communicator.begin(len(tokens))
        places = tokens - self.first
        absent = (places < 0) | (places >= len(self.part.weight))
        rows = self.part(places.masked_fill(absent, 0)).masked_fill(absent[:, None], 0)
        for start, given in vectors:  # those of one rank, to which the others add nothing
            rows[start : start + len(given)] = 0 if self.first else given.to(rows)
        return self.communicator.sum(rows)


@dataclass(frozen=True, slots=True)
class VocabularyParallelHead(Linear):
    """A map to logits of which each rank has some outputs, as many as sizes say. The first rank of
    the stage has all of them, the others their own."""

    part: Linear
    sizes: Sequence[int]
    communicator: Communicator

    def __call__(self, x: Tensor) -> Tensor:
        return self.communicator.gather(self.part(x), self.sizes)


@dataclass(frozen=True, slots=True)
class ReceivedStates:
    """What stands for the embedding in every stage but the first."""

    width: int
    dtype: Any
    device: Any
    communicator: Communicator

    def __call__(self, tokens: Tensor, vectors: Sequence[PlacedVectors] = ()) -> Tensor:
        """This rank's rows [R, width] of the states of tokens [T] that the stage before has
        computed, with its vectors."""
        shape = (self.communicator.begin(len(tokens)), self.width)
        return self.communicator.receive(torch.empty(shape, dtype=self.dtype, device=self.device))


@dataclass(frozen=True, slots=True)
class SendingStage(LanguageModel):
    """The embedding, or what stands for it, and layers, in every stage but the last. It has no
    logits."""

    embedding: Embedding
    layers: Sequence[TransformerLayer]
    communicator: Communicator

    def forward(
        self, tokens: Tensor, step: AttentionStep, vectors: Sequence[PlacedVectors] = ()
    ) -> Tensor:
        """This rank's rows [R, hidden] of the states, which its peer of the next stage gets."""
        x, residual = run_layers(self.embedding, self.layers, tokens, step, vectors)
        total = x if residual is None else x + residual
        self.communicator.send(total)
        return total

    def logits(self, hidden: Tensor) -> Tensor:
        """The hidden states: logits are the last stage's."""
        return hidden
