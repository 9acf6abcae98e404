"""Generation on torch: many sequences in one paged cache, their rows computed together.

Knows no architecture (models/), no file (loading/) and no requests. Blocks that sequences share
are neither copied nor computed again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from runner.backends.backend import (
    Backend,
    BackendError,
    Capacity,
    Row,
    RowFault,
    SampledToken,
    SavedState,
)
from runner.backends.host_sampling.rows import check_limits, score_rows
from runner.backends.torch.attention.block_pool import BlockCopy, BlockPool
from runner.backends.torch.attention.cpu import CpuAttentionStep
from runner.backends.torch.attention.paged import AttentionStep, LayerCache, PagedAttentionStep
from runner.backends.torch.batch import (
    StepBatch,
    StepLayout,
    create_layout,
    output_indices,
    row_ends,
)
from runner.backends.torch.cuda.graphs import CudaGraphRecorder, DecodeGraphs
from runner.backends.torch.cuda.launch_ahead import LaunchAhead, PendingStep
from runner.backends.torch.cuda.launched_step import LaunchedStep
from runner.backends.torch.fused_decoder import fuse
from runner.backends.torch.layers.decoder import PlacedVectors
from runner.backends.torch.loading.adapters import LoraAdapters
from runner.backends.torch.sampling import BatchSampler, TorchSampler
from runner.backends.torch.saved_sequence import TorchSavedSequence, copy_in, copy_out, state_bytes
from runner.types import SamplingParams

log = logging.getLogger(__name__)
Tensor = Any
_ONE = np.ones(1, np.int64)


class LanguageModel(Protocol):
    """What the files of models/ define."""

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        step: AttentionStep,
        vectors: Sequence[PlacedVectors] = (),
    ) -> Tensor:
        """The hidden states [T, hidden], after the last norm, of tokens [T] at positions [T]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [R, vocabulary] of hidden states [R, hidden]."""


class TorchBackend(Backend, LaunchAhead):
    """See runner.backends.backend.Backend, and launch_ahead.LaunchAhead of torch.cuda: on a CPU
    the host has nothing to do meanwhile."""

    def __init__(
        self,
        model: LanguageModel,
        capacity: Capacity,
        caches: Sequence[LayerCache],
        pool: BlockPool,
        device: Any,
        adapters: LoraAdapters | None = None,
    ) -> None:
        """adapters: those that model may have."""
        self.capacity = capacity
        self._adapters = adapters
        self._adapted = False  # adapters act in this step
        self._model: LanguageModel | None = model
        self._caches = list(caches)
        self._pool = pool
        self._batch = StepBatch(self._caches, pool, device)
        self.launches = torch.device(device).type == "cuda"
        self._sampling = BatchSampler(capacity.vocabulary, on_device=self.launches)
        self._graphs = None
        self._fused = fuse(model, self._caches)
        if self.launches:
            width = pool.tables.shape[1]
            self._graphs = DecodeGraphs(
                self._logits,
                self._caches,
                capacity.max_sequences,
                width,
                CudaGraphRecorder(),
                device,
            )

    def create_sampler(self, params: SamplingParams) -> TorchSampler:
        """See Backend.create_sampler. Raises InvalidRequest for what the vocabulary forbids."""
        return self._sampling.create(params)

    @property
    def mixes_adapters(self) -> bool:
        return True

    def load_adapter(self, name: str, path: Path) -> None:
        if self._adapters is None:
            super().load_adapter(name, path)
        else:
            with torch.inference_mode():
                self._adapters.load(name, path)

    def unload_adapter(self, name: str) -> None:
        if self._adapters is not None:
            self._adapters.unload(name)

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        if not rows:
            return []
        layout = create_layout(rows, self.capacity, self._pool.lengths)
        check_limits(rows, self.capacity)
        drafted = [row for row in rows if row.draft]
        copies = self._pool.extend(layout.sequences, layout.counts)
        with torch.inference_mode():
            logits = self._guarded(lambda: self._compute(rows, layout, copies), layout)
            if logits is not None and any(row.scoring is not None for row in rows):
                logits = logits[score_rows(rows, logits.cpu().numpy())]
            if logits is None or not len(logits):
                return []
            wanted = [row for row in rows if row.sampler is not None]
            try:
                sampled = self._sampling.sample(wanted, logits)
            except RowFault as fault:
                self._forget_drafts(drafted, fault.sampled)
                raise
        self._forget_drafts(drafted, sampled)
        return sampled

    def follows(self, row: Row) -> bool:
        return self._sampling.draws(row)

    def launch(self, rows: Sequence[Row], after: PendingStep | None) -> LaunchedStep:
        layout = create_layout(rows, self.capacity, self._pool.lengths)
        copies = self._pool.extend(layout.sequences, layout.counts)
        given = after.tokens_of(rows) if isinstance(after, LaunchedStep) else None

        def compute() -> Tensor:
            return self._sampling.draw(rows, self._compute(rows, layout, copies, given))

        with torch.inference_mode():
            return LaunchedStep(rows, self._guarded(compute, layout), self._pool.trim)

    def _forget_drafts(self, rows: Sequence[Row], sampled: Sequence[SampledToken]) -> None:
        """The tokens of drafts that nothing has confirmed leave the cache."""
        if not rows:
            return
        counts = Counter(found.sequence for found in sampled)
        for row in rows:
            confirmed = max(counts[row.sequence] - 1, 0)
            self._pool.trim(row.sequence, row.position + len(row.tokens) + confirmed)

    def _compute(
        self,
        rows: Sequence[Row],
        layout: StepLayout,
        copies: Sequence[BlockCopy],
        given: Tensor | None = None,
    ) -> Tensor:
        """The logits [outputs, vocabulary] of the rows' targets and of their last tokens where
        they have a sampler, in the order of rows; None where there are none. given: the tokens,
        where they are on the device already."""
        assert self._model is not None
        self._copy_blocks(copies)
        tokens, positions, step = self._batch.fill(layout)
        tokens = tokens if given is None else given
        wanted = output_indices(rows, layout)
        self._act(rows, layout)
        vectors = _placed_vectors(rows, layout) if layout.vectors else ()
        if not vectors and wanted == list(range(len(tokens))):
            if (
                isinstance(step, PagedAttentionStep)
                and self._graphs
                and not self._adapted
                and layout.decodes == len(rows)
            ):
                return self._graphs.run(tokens, positions, step)
            return self._logits(tokens, positions, step)
        if vectors:
            hidden = self._model.forward(tokens, positions, step, vectors)
        else:
            hidden = self._forward(tokens, positions, step)
        for row, end in zip(rows, row_ends(layout), strict=True):
            if row.hidden is not None:
                row.hidden.values = hidden[end - 1].float().tolist()
        if not wanted:
            return None
        if self._adapted and self._adapters is not None:
            self._adapters.act_on(wanted)
        return self._model.logits(hidden[torch.tensor(wanted, device=hidden.device)])

    def _act(self, rows: Sequence[Row], layout: StepLayout) -> None:
        """Let the adapters of the rows act in this step."""
        if self._adapters is not None:
            placed = [rows[at] for at in layout.order]
            self._adapted = self._adapters.act(placed, layout.counts.tolist())

    def _logits(self, tokens: Tensor, positions: Tensor, step: AttentionStep) -> Tensor:
        """Of all tokens of the step."""
        assert self._model is not None
        return self._model.logits(self._forward(tokens, positions, step))

    def _forward(self, tokens: Tensor, positions: Tensor, step: AttentionStep) -> Tensor:
        """The model's hidden states, by its faster self where there is one."""
        assert self._model is not None
        fused = None if self._adapted else self._fused
        if fused is not None and isinstance(step, CpuAttentionStep) and fused.fits(step):
            return fused.forward(tokens, step)
        return self._model.forward(tokens, positions, step)

    def _guarded(self, compute: Callable[[], Tensor], layout: StepLayout) -> Tensor:
        """compute(), after whose failure the pool holds what it held before."""
        try:
            return compute()
        except (torch.OutOfMemoryError, MemoryError) as error:
            self._roll_back(layout)
            raise BackendError(
                f"not enough memory for a step of {len(layout.tokens)} tokens: {error}"
            ) from error
        except RuntimeError as error:
            self._roll_back(layout)
            raise BackendError(f"computing a step failed: {error}") from error

    def _roll_back(self, layout: StepLayout) -> None:
        for sequence, length in zip(layout.sequences, layout.positions, strict=True):
            self._pool.trim(int(sequence), int(length))

    def _copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        for copy in copies:
            for cache in self._caches:
                for part in cache.tensors:
                    part[copy.target] = part[copy.source]

    def share(self, source: int, target: int, length: int) -> None:
        self._check(source)
        self._check(target)
        self._pool.share(source, target, length)

    def merge(self, source: int, target: int, length: int) -> None:
        """See Backend.merge. A block that is not whole stays target's own."""
        self._check(source)
        self._check(target)
        self._pool.merge(source, target, length)

    def trim(self, sequence: int, length: int) -> bool:
        self._check(sequence)
        self._pool.trim(sequence, length)
        return True

    def release(self, sequence: int) -> None:
        self._check(sequence)
        self._pool.trim(sequence, 0)

    def state_bytes(self, sequence: int) -> int:
        self._check(sequence)
        return state_bytes(self._caches, int(self._pool.lengths[sequence]))

    def save(self, sequence: int) -> TorchSavedSequence:
        self._check(sequence)
        length = int(self._pool.lengths[sequence])
        if length == 0:
            raise BackendError(f"sequence {sequence} is empty: nothing to save")
        return copy_out(self._caches, self._pool.blocks(sequence), length)

    def load(self, state: SavedState, sequence: int) -> None:
        self._check(sequence)
        if not isinstance(state, TorchSavedSequence):
            raise BackendError(f"a {type(state).__name__} is not a state of this backend")
        if self._pool.lengths[sequence]:
            raise BackendError(f"sequence {sequence} has tokens: it must be empty to load")
        self._pool.extend(_ONE * sequence, _ONE * state.tokens)
        with torch.inference_mode():
            copy_in(self._caches, self._pool.blocks(sequence), state)

    def reset(self) -> None:
        self._pool.clear()

    def close(self) -> None:
        """See Backend.close. Calling it twice is allowed."""
        self._model = self._graphs = self._fused = None
        self._caches.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _check(self, sequence: int) -> None:
        if not 0 <= sequence < self.capacity.max_sequences:
            raise BackendError(
                f"no sequence {sequence}; there are 0 to {self.capacity.max_sequences - 1}"
            )


def _placed_vectors(rows: Sequence[Row], layout: StepLayout) -> list[PlacedVectors]:
    """The vectors of rows that have them in place of tokens, by where these stand in the step."""
    return [
        (end - len(row.tokens), torch.from_numpy(row.image.vectors))
        for row, end in zip(rows, row_ends(layout), strict=True)
        if row.image is not None
    ]
