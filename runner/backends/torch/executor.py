"""The model and its cache on one device, and what computes a step with them.

Knows blocks of the cache, no sequences, samplers or requests: of several processes that compute one
model (parallel/) each has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from runner.backends.torch.attention.block_pool import BlockCopy
from runner.backends.torch.attention.cpu import CpuAttentionStep
from runner.backends.torch.attention.paged import AttentionStep, LayerCache, PagedAttentionStep
from runner.backends.torch.batch import StepBatch, StepInputs
from runner.backends.torch.cuda.graphs import CudaGraphRecorder, DecodeGraphs
from runner.backends.torch.fused_decoder import fuse
from runner.backends.torch.layers.decoder import LanguageModel
from runner.backends.torch.layers.linear import PlacedVectors
from runner.backends.torch.loading.adapters import LoraAdapters

Tensor = Any


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """logits float32 [outputs, vocabulary] and states float32 [states, hidden], as the inputs want
    them; None where they want none."""

    logits: Tensor | None
    states: Tensor | None = None


class AdapterSet(Protocol):
    """The adapters of a model: see Backend.load_adapter and unload_adapter."""

    def load(self, name: str, path: Path) -> None:
        """Raises ModelLoadFailed."""

    def unload(self, name: str) -> None:
        """It was loaded."""


class Executor(Protocol):
    """What computes the steps of a backend."""

    caches: Sequence[LayerCache]
    adapters: AdapterSet | None  # those that the model may have; None: it can have none

    def compute(self, inputs: StepInputs, given: Tensor | None = None) -> StepOutputs:
        """Compute a step. given: its tokens, where they are on the device already. Raises what
        torch raises."""


@dataclass(frozen=True, slots=True)
class CacheGeometry:
    """block_size in tokens; a step has at most max_sequences of at most max_blocks each."""

    block_size: int
    max_sequences: int
    max_blocks: int


class LocalExecutor(Executor):
    """All of a model in this process, by its fastest way here."""

    def __init__(
        self,
        model: LanguageModel,
        caches: Sequence[LayerCache],
        geometry: CacheGeometry,
        device: Any,
        adapters: LoraAdapters | None = None,
    ) -> None:
        """adapters: those that model may have."""
        self.caches = list(caches)
        self.adapters: LoraAdapters | None = adapters
        self._adapted = False  # adapters act in this step
        self._model = model
        self._batch = StepBatch(self.caches, geometry.block_size, device)
        self._fused = fuse(model, self.caches)
        self._graphs = None
        if torch.device(device).type == "cuda":
            self._graphs = DecodeGraphs(
                self._logits,
                self.caches,
                geometry.max_sequences,
                geometry.max_blocks,
                CudaGraphRecorder(),
                device,
            )

    def compute(self, inputs: StepInputs, given: Tensor | None = None) -> StepOutputs:
        copy_blocks(self.caches, inputs.copies)
        tokens, step = self._batch.fill(inputs)
        tokens = tokens if given is None else given
        if self.adapters is not None:
            self._adapted = self.adapters.act(inputs.adapters, inputs.counts.tolist())
        if not inputs.vectors and list(inputs.outputs) == list(range(len(tokens))):
            if (
                isinstance(step, PagedAttentionStep)
                and self._graphs
                and not self._adapted
                and only_decodes(inputs)
            ):
                return StepOutputs(self._graphs.run(tokens, step))
            return StepOutputs(self._logits(tokens, step))
        if inputs.vectors:
            hidden = self._model.forward(tokens, step, placed_vectors(inputs))
        else:
            hidden = self._forward(tokens, step)
        if self._adapted and self.adapters is not None and inputs.outputs:
            self.adapters.act_on(inputs.outputs)
        return wanted_outputs(self._model, hidden, inputs)

    def _logits(self, tokens: Tensor, step: AttentionStep) -> Tensor:
        """Of all tokens of the step."""
        return self._model.logits(self._forward(tokens, step))

    def _forward(self, tokens: Tensor, step: AttentionStep) -> Tensor:
        """The model's hidden states, by its faster self where there is one."""
        fused = self._fused
        if fused is not None and isinstance(step, CpuAttentionStep) and fused.fits(step):
            return fused.forward(tokens, step)
        return self._model.forward(tokens, step)


def copy_blocks(caches: Sequence[LayerCache], copies: Sequence[BlockCopy]) -> None:
    """Make the copies in all caches."""
    for copy in copies:
        for cache in caches:
            for part in cache.tensors:
                part[copy.target] = part[copy.source]


def only_decodes(inputs: StepInputs) -> bool:
    """Every row has one token."""
    return inputs.decodes == len(inputs.counts)


def placed_vectors(inputs: StepInputs) -> list[PlacedVectors]:
    """The vectors in place of tokens, as the model takes them."""
    return [(start, torch.from_numpy(vectors)) for start, vectors in inputs.vectors]


def wanted_outputs(model: LanguageModel, hidden: Tensor, inputs: StepInputs) -> StepOutputs:
    """What the inputs want of hidden states [T, hidden]."""

    def chosen(places: Sequence[int]) -> Tensor:
        return hidden[torch.tensor(places, device=hidden.device)]

    return StepOutputs(
        model.logits(chosen(inputs.outputs)) if inputs.outputs else None,
        chosen(inputs.states).float() if inputs.states else None,
    )
