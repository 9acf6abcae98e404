"""A rank's part of a model and of its cache, and how the first rank has all of them compute.

Every rank computes the same steps in the same order; their layers meet in collectives. A rank that
fails in the middle of a step has left the others waiting there: its process ends, and with it all.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from runner.backends.backend import Followers, Leader
from runner.backends.torch.attention.paged import LayerCache
from runner.backends.torch.batch import StepBatch, StepInputs
from runner.backends.torch.executor import (
    AdapterSet,
    Executor,
    StepOutputs,
    copy_blocks,
    placed_vectors,
    wanted_outputs,
)
from runner.backends.torch.layers.decoder import LanguageModel
from runner.backends.torch.loading.adapters import LoraAdapters
from runner.backends.torch.parallel.communication import Communicator, Ranks
from runner.backends.torch.parallel.messages import AdapterLoad, AdapterUnload, decode, encode
from runner.backends.torch.parallel.micro_batches import micro_batches
from runner.errors import ModelLoadFailed

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
        ranks: Ranks,
        adapters: LoraAdapters,
    ) -> None:
        """adapters: those that model, this rank's part of it, may have."""
        assert ranks.communicator is not None
        self.adapters: AdapterSet = RankAdapters(adapters, ranks.communicator)
        self._acting = adapters
        self.caches = list(caches)
        self._model = model
        self._layout = ranks.layout
        self._batch = StepBatch(self.caches, block_size, device)

    def compute(self, inputs: StepInputs, given: Tensor | None = None) -> StepOutputs:
        assert given is None, "tokens that are on a device only are not known to the other ranks"
        copy_blocks(self.caches, inputs.copies)
        pieces = micro_batches(inputs, self._layout.pipeline)
        found = [self._forward(piece) for piece in pieces]
        if not self._layout.is_last:
            return StepOutputs(None)
        hidden = found[0] if len(found) == 1 else torch.cat(found)
        if len(pieces) > 1:
            self._acting.act(inputs.adapters, inputs.counts.tolist())
        if inputs.outputs:
            self._acting.act_on(inputs.outputs)
        return wanted_outputs(self._model, hidden, inputs)

    def _forward(self, inputs: StepInputs) -> Tensor:
        tokens, step = self._batch.fill(inputs)
        self._acting.act(inputs.adapters, inputs.counts.tolist())
        vectors = placed_vectors(inputs) if self._layout.is_first else ()
        return self._model.forward(tokens, step, vectors)


class LeadingExecutor(Executor):
    """The first rank's: the others compute what it computes."""

    def __init__(self, own: Executor, followers: Followers) -> None:
        """Takes over own."""
        self.adapters = LeadingAdapters(own.adapters, followers)
        self.caches = own.caches
        self._own = own
        self._followers = followers

    def compute(self, inputs: StepInputs, given: Tensor | None = None) -> StepOutputs:
        self._followers.broadcast(encode(inputs))
        try:
            return self._own.compute(inputs, given)
        except Exception as error:
            log.exception("the first of the model's processes failed in a step")
            self._followers.abandon(f"computing a step failed: {error}")
            raise


class RankAdapters(AdapterSet):
    """This rank's slices of adapters that all ranks load, or none does."""

    def __init__(self, own: LoraAdapters, communicator: Communicator) -> None:
        self._own = own
        self._communicator = communicator

    def load(self, name: str, path: Path) -> None:
        failure = None
        try:
            self._own.load(name, path)
        except ModelLoadFailed as error:
            failure = error.message
        except (MemoryError, OSError, RuntimeError) as error:
            failure = f"the adapter {name} could not be loaded: {error or type(error).__name__}"
        if (reason := self._communicator.first_failure(failure)) is None:
            return
        if failure is None:
            self._own.unload(name)
        raise ModelLoadFailed(reason)

    def unload(self, name: str) -> None:
        self._own.unload(name)


class LeadingAdapters(AdapterSet):
    """The first rank's: the others load and unload what it does."""

    def __init__(self, own: AdapterSet | None, followers: Followers) -> None:
        assert own is not None
        self._own = own
        self._followers = followers

    def load(self, name: str, path: Path) -> None:
        try:
            self._followers.broadcast(encode(AdapterLoad(name)), path)
        except OSError as error:
            raise ModelLoadFailed(f"the adapter {name} cannot be read: {error}") from error
        try:
            self._own.load(name, path)
        except ModelLoadFailed:
            raise
        except Exception as error:
            log.exception("the first of the model's processes failed to load an adapter")
            self._followers.abandon(f"loading the adapter {name} failed: {error}")
            raise

    def unload(self, name: str) -> None:
        self._followers.broadcast(encode(AdapterUnload(name)))
        self._own.unload(name)


def follow(executor: Executor, leader: Leader) -> None:
    """Do what the first rank says, until it is gone. Raises what leader.receive and computing
    raise."""
    adapters = executor.adapters
    assert adapters is not None
    with torch.inference_mode():
        while True:
            match decode(leader.receive()):
                case AdapterLoad(name):
                    with leader.receive_file() as file, suppress(ModelLoadFailed):
                        adapters.load(name, Path(f"/proc/self/fd/{file.fileno()}"))
                case AdapterUnload(name):
                    adapters.unload(name)
                case step:
                    executor.compute(step)
