"""Generation with llama.cpp: many sequences in one context with a unified cache.

Sequences share cache cells, so a shared prefix is neither copied nor computed again. Knows
nothing of requests, text or fairness.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_cpp import llama_cpp as native

from runner.backends.backend import (
    Backend,
    BackendError,
    Capacity,
    PoolFull,
    Row,
    RowFault,
    SampledToken,
    SavedState,
)
from runner.backends.host_sampling.logits import LogitRows
from runner.backends.host_sampling.rows import (
    RowSampler,
    check_limits,
    output_count,
    score_rows,
)
from runner.backends.host_sampling.sampler import HostSampler
from runner.backends.llamacpp.adapters import Adapters
from runner.backends.llamacpp.batch import TokenBatch
from runner.backends.llamacpp.context import Context
from runner.backends.llamacpp.mixed_adapters import MixedAdapters
from runner.backends.llamacpp.resize import resize
from runner.backends.llamacpp.saved_sequence import (
    JoinedParts,
    LlamaCppSavedSequence,
    SequenceCopies,
    state_bytes,
)
from runner.backends.llamacpp.small_batches import SmallBatchPolicy
from runner.backends.llamacpp.vision.image_batch import ImageBatch
from runner.backends.llamacpp.vision.positions import SequencePositions
from runner.backends.llamacpp.window import AttentionWindow
from runner.types import SamplingParams

if TYPE_CHECKING:
    from runner.backends.llamacpp.vision.encoder import LlamaCppVisionEncoder


class LlamaCppBackend(Backend):
    """A context of llama.cpp; its memory of sequences is the cache."""

    def __init__(
        self,
        context: Context,
        capacity: Capacity,
        vision: LlamaCppVisionEncoder | None = None,
        parameters: Any = None,
        mixed: MixedAdapters | None = None,
    ) -> None:
        """Takes over context and vision, which is that of rows with images. parameters: that it was
        made with; None: its cache does not grow. mixed: where hearth's kernels compute. Of copies
        in parts, the context has one sequence more than the capacity."""
        self.capacity = capacity
        self._parameters = parameters
        self._context = context
        scratch = capacity.max_sequences if capacity.part_tokens else None
        self._copies = SequenceCopies(context, scratch, capacity.part_tokens)
        self._batch = TokenBatch(capacity.batch_tokens)
        self._grouping = SmallBatchPolicy()
        self._sampling = RowSampler(capacity.vocabulary)
        self._vision = vision
        self._adapters = Adapters(context, mixed)
        full = parameters is None or parameters.swa_full
        self._window = AttentionWindow(context, full=full) if capacity.window else None
        differ = vision is not None and vision.uses_mrope
        self._positions = SequencePositions() if differ else None
        self._images = None if vision is None else ImageBatch(context, self._positions)

    def create_sampler(self, params: SamplingParams) -> HostSampler:
        """See Backend.create_sampler. Raises InvalidRequest for what the vocabulary forbids."""
        return HostSampler(params, self._sampling.candidates, self.capacity.vocabulary)

    @property
    def mixes_adapters(self) -> bool:
        return self._adapters.can_mix

    def load_adapter(self, name: str, path: Path) -> None:
        self._adapters.load(name, path)

    def unload_adapter(self, name: str) -> None:
        self._adapters.unload(name)

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        if not rows:
            return []
        if any(row.hidden is not None for row in rows):
            return self._step_with_states(rows)
        for row in rows:
            self.capacity.check_sequence(row.sequence)
        sampled = [row for row in rows if row.sampler is not None]
        if len(sampled) > self.capacity.max_sequences:  # room for logits is reserved for so many
            raise BackendError(
                f"{len(sampled)} rows to sample; there are {self.capacity.max_sequences} sequences"
            )
        check_limits(rows, self.capacity)
        outputs = sum(map(output_count, rows))
        if self._images is not None and any(row.image is not None for row in rows):
            logits = self._compute_images(self._images, rows, outputs)
        else:
            logits = self._compute(rows, outputs)
        if logits is not None and any(row.scoring is not None for row in rows):
            logits = logits[score_rows(rows, logits)]
        return self._sample(sampled, logits)

    def _step_with_states(self, rows: Sequence[Row]) -> list[SampledToken]:
        """As step. llama.cpp gives the states of all tokens of a batch or of none, so that those
        whose state is asked for are computed after the others."""
        last = [
            replace(row, tokens=row.tokens[-1:], position=row.position + len(row.tokens) - 1)
            for row in rows
            if row.hidden is not None
        ]
        before = [
            row if row.hidden is None else replace(row, tokens=row.tokens[:-1], hidden=None)
            for row in rows
        ]
        fault = None
        try:
            sampled = self.step([row for row in before if row.tokens])
        except RowFault as error:
            fault, sampled = error, []
        try:
            self._batch.fill(last, all_outputs=True, sequence_positions=self._positions or None)
            self._adapters.act(last, self._batch)
            states = self._context.states(self._batch)
        except PoolFull as error:
            raise BackendError(str(error)) from None  # something has changed
        for row, values in zip(last, states, strict=True):
            assert row.hidden is not None
            row.hidden.values = values
        if fault is not None:
            raise fault
        return sampled

    def _compute(self, rows: Sequence[Row], outputs: int) -> LogitRows | None:
        """The logits [outputs, vocabulary] of the rows with a sampler or targets. Raises as step
        does."""
        began_s = time.perf_counter()
        decoding = all(row.sampler is not None and len(row.tokens) == 1 and not row.draft
                       for row in rows)  # fmt: skip
        capacity = self.capacity
        can_part = decoding and (capacity.partial_share or capacity.window)
        if can_part and self._grouping.separately(len(rows)):
            logits = self._compute_separately(rows)
            self._grouping.record_separate(len(rows), time.perf_counter() - began_s)
            return logits
        self._decode(rows)
        if not outputs:
            return None
        view = self._context.logits(outputs)
        if decoding:
            self._grouping.record_together(len(rows), time.perf_counter() - began_s)
        return view

    def _decode(self, rows: Sequence[Row]) -> None:
        self._batch.fill(rows, sequence_positions=self._positions or None)
        self._adapters.act(rows, self._batch)
        self._context.decode(self._batch)

    def _compute_separately(self, rows: Sequence[Row]) -> LogitRows:
        logits = np.empty((len(rows), self.capacity.vocabulary), np.float32)
        for at, row in enumerate(rows):
            try:
                self._decode([row])
            except PoolFull:
                self._undo(rows[:at])
                raise
            logits[at] = self._context.logits(1)[0]
        return logits

    def _compute_images(
        self, images: ImageBatch, rows: Sequence[Row], outputs: int
    ) -> LogitRows | None:
        """As _compute, for rows some of which are images: these first, since the logits of a
        batch are good until the next one."""
        ends: dict[int, LogitRows] = {}
        begun: list[Row] = []
        try:
            for at, row in enumerate(rows):
                if row.image is not None:
                    begun.append(row)
                    self._adapters.act([row], self._batch)
                    found = images.decode(row)
                    ends.update({} if found is None else {at: found})
            text = [row for row in rows if row.image is None]
            logits = self._compute(text, outputs - len(ends)) if text else None
        except PoolFull:
            self._undo(begun)
            raise
        return logits if not ends else _interleave(rows, logits, ends)

    def _undo(self, rows: Sequence[Row]) -> None:
        """Forget what rows have computed. Raises BackendError when they cannot."""
        for row in rows:
            if not self.trim(row.sequence, row.position):
                raise BackendError(f"sequence {row.sequence} lost what its next token sees")

    def _sample(self, rows: Sequence[Row], logits: LogitRows | None) -> list[SampledToken]:
        if logits is None:
            return []
        results: list[SampledToken] = []
        faulty, at = [], 0
        for row in rows:
            end = at + 1 + len(row.draft)
            chosen = self._confirm(row, logits[at:end])
            results += chosen
            if not chosen:
                faulty.append(row.sequence)
            at = end
        if faulty:
            raise RowFault(
                "the model produced invalid probabilities (NaN) for the next token; its file may "
                "be damaged or its cache type too small",
                sampled=results,
                sequences=faulty,
            )
        return results

    def _confirm(self, row: Row, logits: LogitRows) -> list[SampledToken]:
        """The token after the row's, then one after each confirmed token of its draft; the rest
        of the draft leaves the cache. Empty when there are no usable logits."""
        chosen = self._sampling.sample(row, logits)
        kept = max(len(chosen) - 1, 0)
        end = row.position + len(row.tokens) + kept
        if kept < len(row.draft) and not self.trim(row.sequence, end):
            raise BackendError(f"the draft of sequence {row.sequence} cannot leave the cache")
        return chosen

    def share(self, source: int, target: int, length: int) -> None:
        self.capacity.check_sequence(target)
        held = self._length(source)
        if not max(1, self._min_length(source, held)) <= length <= held:
            raise BackendError(
                f"cannot share {length} tokens of sequence {source}, which has {held}"
            )
        end = self._position(source, length) if length < held else -1
        native.llama_memory_seq_cp(self._context.memory, source, target, 0, end)
        if self._window is not None:
            self._window.separate([target])
        if self._positions:
            self._positions.set_spans(target, self._positions.spans_before(source, length))

    def min_share(self, sequence: int) -> int:
        return self._min_length(sequence, self._length(sequence))

    def _min_length(self, sequence: int, held: int) -> int:
        """How few of its held tokens a sequence can be cut to."""
        if self._window is not None:
            return self._window.min_length(sequence)
        return 0 if self.capacity.partial_share else held

    def merge(self, source: int, target: int, length: int) -> None:
        held = min(self._length(source), self._length(target))
        if not 0 < length <= held or not self.capacity.partial_share:
            raise BackendError(
                f"cannot merge {length} tokens of sequences {source} and {target}: both have {held}"
            )
        end = self._position(source, length)
        native.llama_memory_seq_rm(self._context.memory, target, 0, end)
        native.llama_memory_seq_cp(self._context.memory, source, target, 0, end)

    def trim(self, sequence: int, length: int) -> bool:
        self.capacity.check_sequence(sequence)
        start = self._position(sequence, length)
        if self._window is not None and length < self._window.min_length(sequence):
            return False
        done = bool(native.llama_memory_seq_rm(self._context.memory, sequence, start, -1))
        if done and self._positions:
            self._positions.truncate(sequence, length)
        return done

    def release(self, sequence: int) -> None:
        self.capacity.check_sequence(sequence)
        native.llama_memory_seq_rm(self._context.memory, sequence, -1, -1)
        if self._positions:
            self._positions.truncate(sequence, 0)

    def state_bytes(self, sequence: int) -> int:
        self.capacity.check_sequence(sequence)
        return state_bytes(self._context, sequence)

    def save(self, sequence: int) -> LlamaCppSavedSequence:
        self.capacity.check_sequence(sequence)
        spans = self._positions.image_spans(sequence) if self._positions else ()
        saved = self._copies.copy_out(sequence, in_parts=not spans)
        saved.image_spans = spans
        return saved

    def empty_state(self, size_bytes: int, tokens: int) -> LlamaCppSavedSequence:
        return LlamaCppSavedSequence(size_bytes, tokens)

    def join_parts(self, parts: Sequence[memoryview], tokens: int) -> JoinedParts:
        return JoinedParts(parts, tokens)

    def load(self, state: SavedState, sequence: int) -> None:
        self.capacity.check_sequence(sequence)
        if not isinstance(state, LlamaCppSavedSequence | JoinedParts):
            raise BackendError(f"a {type(state).__name__} is not a state of this backend")
        self._copies.copy_in(state, sequence)
        if self._positions is not None:
            self._positions.set_spans(sequence, state.image_spans)

    def grow(self, pool_tokens: int) -> None:
        resize(self._context, self._parameters, pool_tokens)
        self._adapters.moved()
        if self._window is not None:
            self._window.separate(range(self.capacity.max_sequences))
        tokens = native.llama_n_ctx(self._context.handle)
        self.capacity = replace(self.capacity, pool_tokens=tokens)

    def reset(self) -> None:
        if not self._context.memory:
            raise BackendError("there is no cache; memory may be short")
        native.llama_memory_clear(self._context.memory, False)
        if self._positions:
            self._positions.clear()

    def close(self) -> None:
        """See Backend.close. Calling it twice is allowed."""
        if self._vision is not None:
            self._vision.close()
        self._context.close()
        self._adapters.close()

    def _length(self, sequence: int) -> int:
        self.capacity.check_sequence(sequence)
        last = int(native.llama_memory_seq_pos_max(self._context.memory, sequence))
        return self._positions.length(sequence, last) if self._positions else last + 1

    def _position(self, sequence: int, length: int) -> int:
        """The position after the sequence's first length tokens."""
        return self._positions.position(sequence, length) if self._positions else length


def _interleave(
    rows: Sequence[Row], text: LogitRows | None, ends: dict[int, LogitRows]
) -> LogitRows:
    """The logits of all rows in their order: those after images among those of text."""
    found: list[LogitRows] = []
    start = 0
    for at, row in enumerate(rows):
        if at in ends:
            found.append(ends[at])
        elif row.image is None and text is not None:
            count = output_count(row)
            found.append(text[start : start + count])
            start += count
    return np.concatenate(found)
