"""A rank's part of a model and of its cache, and how the first rank has all of them compute.

Every rank computes the same steps in the same order; their layers meet in collectives. A rank that
fails in the middle of a step has left the others waiting there: its process ends, and with it all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from runner.backends.backend import Followers
from runner.backends.torch.attention.paged import LayerCache
from runner.backends.torch.batch import StepBatch, StepInputs
from runner.backends.torch.executor import (
    Executor,
    StepOutputs,
    copy_blocks,
    placed_vectors,
    wanted_outputs,
)
from runner.backends.torch.layers.decoder import LanguageModel
from runner.backends.torch.parallel.messages import (
    decode_step,
    encode_step,
)
from runner.backends.torch.parallel.micro_batches import micro_batches
from runner.backends.torch.parallel.rank_layout import RankLayout

Tensor = Any
log = logging.getLogger(__name__)


class RankExecutor(Executor):
    """Computes this rank's part of steps that all ranks compute."""

    def __init__(
        self,
        model: LanguageModel,
        caches: Sequence[LayerCache],
        block_size: int,
        device: Any,
        layout: RankLayout,
    ) -> None:
        self.adapters = None
        self.caches = list(caches)
        self._model = model
        self._layout = layout
        self._batch = StepBatch(self.caches, block_size, device)

    def compute(self, inputs: StepInputs, given: Tensor | None = None) -> StepOutputs:
        assert given is None, "tokens that are on a device only are not known to the other ranks"
        copy_blocks(self.caches, inputs.copies)
        pieces = micro_batches(inputs, self._layout.pipeline)
        found = [self._forward(piece) for piece in pieces]
        if not self._layout.is_last:
            return StepOutputs(None)
        hidden = found[0] if len(found) == 1 else torch.cat(found)
        return wanted_outputs(self._model, hidden, inputs)

    def _forward(self, inputs: StepInputs) -> Tensor:
        tokens, step = self._batch.fill(inputs)
        vectors = placed_vectors(inputs) if self._layout.is_first else ()
        return self._model.forward(tokens, step, vectors)


class LeadingExecutor(Executor):
    """The first rank's: the others compute what it computes."""

    def __init__(self, own: Executor, followers: Followers) -> None:
        """Takes over own."""
        self.adapters = None
        self.caches = own.caches
        self._own = own
        self._followers = followers

    def compute(self, inputs: StepInputs, given: Tensor | None = None) -> StepOutputs:
        self._followers.broadcast(encode_step(inputs))
        try:
            return self._own.compute(inputs, given)
        except Exception as error:
            log.exception("the first of the model's processes failed in a step")
            self._followers.abandon(f"computing a step failed: {error}")
            raise


def follow(executor: Executor, receive: Callable[[], bytes]) -> None:
    """Compute what the first rank says, until receive raises. Raises what computing raises."""
    with torch.inference_mode():
        while True:
            executor.compute(decode_step(receive()))
