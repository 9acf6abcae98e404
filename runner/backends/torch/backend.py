"""Generation on torch: many sequences in one paged cache, their rows computed together.

Knows no architecture (models/), no file (loading/) and no requests. Blocks that sequences share
are neither copied nor computed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
from runner.backends.torch.batch import StepLayout, create_inputs, create_layout
from runner.backends.torch.cuda.launch_ahead import LaunchAhead, PendingStep
from runner.backends.torch.cuda.launched_step import LaunchedStep
from runner.backends.torch.executor import Executor
from runner.backends.torch.sampling import BatchSampler, TorchSampler
from runner.backends.torch.saved_sequence import TorchSavedSequence, copy_in, copy_out, state_bytes
from runner.types import SamplingParams

Tensor = Any
_ONE = np.ones(1, np.int64)


class TorchBackend(Backend, LaunchAhead):
    """See runner.backends.backend.Backend, and launch_ahead.LaunchAhead of torch.cuda: on a CPU
    the host has nothing to do meanwhile."""

    def __init__(
        self, executor: Executor, capacity: Capacity, pool: BlockPool, *, on_device: bool = False
    ) -> None:
        """on_device: the logits are on a GPU, and sampled there."""
        self.capacity = capacity
        self._executor = executor
        self._pool = pool
        self.launches = on_device
        self._sampling = BatchSampler(capacity.vocabulary, on_device=on_device)

    def create_sampler(self, params: SamplingParams) -> TorchSampler:
        """See Backend.create_sampler. Raises InvalidRequest for what the vocabulary forbids."""
        return self._sampling.create(params)

    @property
    def mixes_adapters(self) -> bool:
        return True

    def load_adapter(self, name: str, path: Path) -> None:
        if self._executor.adapters is None:
            super().load_adapter(name, path)
        else:
            with torch.inference_mode():
                self._executor.adapters.load(name, path)

    def unload_adapter(self, name: str) -> None:
        if self._executor.adapters is not None:
            self._executor.adapters.unload(name)

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
        inputs = create_inputs(rows, layout, self._pool, copies)
        found = self._executor.compute(inputs, given)
        if found.states is not None:
            wanted = (row.hidden for row in rows if row.hidden is not None)
            for state, values in zip(wanted, found.states.tolist(), strict=True):
                state.values = values
        return found.logits

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

    def share(self, source: int, target: int, length: int) -> None:
        self.capacity.check_sequence(source)
        self.capacity.check_sequence(target)
        self._pool.share(source, target, length)

    def merge(self, source: int, target: int, length: int) -> None:
        """See Backend.merge. A block that is not whole stays target's own."""
        self.capacity.check_sequence(source)
        self.capacity.check_sequence(target)
        self._pool.merge(source, target, length)

    def trim(self, sequence: int, length: int) -> bool:
        self.capacity.check_sequence(sequence)
        self._pool.trim(sequence, length)
        return True

    def release(self, sequence: int) -> None:
        self.capacity.check_sequence(sequence)
        self._pool.trim(sequence, 0)

    def state_bytes(self, sequence: int) -> int:
        self.capacity.check_sequence(sequence)
        return state_bytes(self._executor.caches, int(self._pool.lengths[sequence]))

    def save(self, sequence: int) -> TorchSavedSequence:
        self.capacity.check_sequence(sequence)
        length = int(self._pool.lengths[sequence])
        if length == 0:
            raise BackendError(f"sequence {sequence} is empty: nothing to save")
        return copy_out(self._executor.caches, self._pool.blocks(sequence), length)

    def load(self, state: SavedState, sequence: int) -> None:
        self.capacity.check_sequence(sequence)
        if not isinstance(state, TorchSavedSequence):
            raise BackendError(f"a {type(state).__name__} is not a state of this backend")
        if self._pool.lengths[sequence]:
            raise BackendError(f"sequence {sequence} has tokens: it must be empty to load")
        self._pool.extend(_ONE * sequence, _ONE * state.tokens)
        with torch.inference_mode():
            copy_in(self._executor.caches, self._pool.blocks(sequence), state)

    def reset(self) -> None:
        self._pool.clear()
