"""Generation with llama.cpp: many sequences in one context with a unified cache.

Sequences share cache cells, so a shared prefix is neither copied nor computed again. Knows
nothing of requests, text or fairness.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as native

from runner.backends.backend import (
    BackendError,
    Capacity,
    PoolFull,
    Row,
    RowFault,
    Sampled,
    SavedState,
)
from runner.backends.llamacpp.batch import Batch
from runner.backends.llamacpp.chain import Candidates
from runner.backends.llamacpp.context import Context, FloatRows
from runner.backends.llamacpp.grouping import Grouping
from runner.backends.llamacpp.logprobs import logprobs, score
from runner.backends.llamacpp.masking import Masking
from runner.backends.llamacpp.penalties import FloatRow
from runner.backends.llamacpp.sampler import LlamaCppSampler
from runner.backends.llamacpp.saved import SavedSequence, copy_in, copy_out, state_bytes
from runner.types import SamplingParams


class LlamaCppBackend:
    """See runner.backends.backend.Backend."""

    def __init__(self, context: Context, capacity: Capacity) -> None:
        self.capacity = capacity
        self._context = context
        self._batch = Batch(capacity.batch_tokens)
        self._candidates = Candidates(capacity.vocabulary)
        self._grouping = Grouping()
        self._masking = Masking(capacity.vocabulary)

    def create_sampler(self, params: SamplingParams) -> LlamaCppSampler:
        """See Backend.create_sampler. Raises InvalidRequest for what the vocabulary forbids."""
        return LlamaCppSampler(params, self._candidates, self.capacity.vocabulary)

    def step(self, rows: Sequence[Row]) -> list[Sampled]:
        """See Backend.step."""
        if not rows:
            return []
        for row in rows:
            self._check(row.sequence)
        sampled = [row for row in rows if row.sampler is not None]
        if len(sampled) > self.capacity.max_sequences:  # room for logits is reserved for so many
            raise BackendError(
                f"{len(sampled)} rows to sample; there are {self.capacity.max_sequences} sequences"
            )
        targets = sum(len(row.scoring.targets) for row in rows if row.scoring is not None)
        if targets > self.capacity.score_tokens:
            raise BackendError(f"{targets} tokens to score of {self.capacity.score_tokens}")
        drafted = sum(len(row.draft) for row in sampled)
        if drafted > self.capacity.draft_tokens:
            raise BackendError(f"{drafted} tokens in drafts of {self.capacity.draft_tokens}")
        logits = self._compute(rows, len(sampled) + drafted + targets)
        if logits is not None and targets:
            logits = logits[score(rows, logits)]
        return self._sample(sampled, logits)

    def _compute(self, rows: Sequence[Row], outputs: int) -> FloatRows | None:
        """The logits [outputs, vocabulary] of the rows with a sampler or targets. Raises as step
        does."""
        began_s = time.perf_counter()
        decoding = all(row.sampler is not None and len(row.tokens) == 1 and not row.draft
                       for row in rows)  # fmt: skip
        if decoding and self.capacity.partial_share and self._grouping.apart(len(rows)):
            logits = self._compute_apart(rows)
            self._grouping.measured_apart(len(rows), time.perf_counter() - began_s)
            return logits
        self._batch.fill(rows)
        self._context.decode(self._batch)
        if not outputs:
            return None
        view = self._context.logits(outputs)
        if decoding:
            self._grouping.measured_together(len(rows), time.perf_counter() - began_s)
        return view

    def _compute_apart(self, rows: Sequence[Row]) -> FloatRows:
        logits = np.empty((len(rows), self.capacity.vocabulary), np.float32)
        for at, row in enumerate(rows):
            try:
                self._batch.fill([row])
                self._context.decode(self._batch)
            except PoolFull:
                for done in rows[:at]:
                    self.trim(done.sequence, done.position)
                raise
            logits[at] = self._context.logits(1)[0]
        return logits

    def _sample(self, rows: Sequence[Row], logits: FloatRows | None) -> list[Sampled]:
        if logits is None:
            return []
        results: list[Sampled] = []
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
                "the model computed no usable probabilities (NaN) for the next token; its file may "
                "be damaged or its cache type too small",
                sampled=results,
                sequences=faulty,
            )
        return results

    def _confirm(self, row: Row, logits: FloatRows) -> list[Sampled]:
        """The token after the row's, then one after each confirmed token of its draft; the rest
        of the draft leaves the cache. Empty when there are no usable logits."""
        chosen: list[Sampled] = []
        for at, proposed in enumerate((*row.draft, None)):
            sampled = self._choose(row, logits[at])
            if sampled is None:
                break
            chosen.append(sampled)
            if sampled.token != proposed:
                break
        kept = max(len(chosen) - 1, 0)
        if kept < len(row.draft):
            self.trim(row.sequence, row.position + len(row.tokens) + kept)
        return chosen

    def _choose(self, row: Row, logits: FloatRow) -> Sampled | None:
        sampler = row.sampler
        assert isinstance(sampler, LlamaCppSampler)
        if row.mask is None:
            token = sampler.choose(logits)
        else:
            token = sampler.choose(self._masking.apply(logits, row.mask))
        if token is None:
            return None
        count = sampler.params.logprobs
        if count is None:
            return Sampled(row.sequence, token)
        logprob, top = logprobs(logits, token, count)
        return Sampled(row.sequence, token, logprob, top)

    def share(self, source: int, target: int, length: int) -> None:
        """See Backend.share."""
        self._check(target)
        held = self._held(source)
        if not 0 < length <= held or (length < held and not self.capacity.partial_share):
            raise BackendError(
                f"cannot share {length} tokens of sequence {source}, which has {held}"
            )
        end = length if self.capacity.partial_share else -1
        native.llama_memory_seq_cp(self._context.memory, source, target, 0, end)

    def merge(self, source: int, target: int, length: int) -> None:
        """See Backend.merge."""
        held = min(self._held(source), self._held(target))
        if not 0 < length <= held or not self.capacity.partial_share:
            raise BackendError(
                f"cannot merge {length} tokens of sequences {source} and {target}: both have {held}"
            )
        native.llama_memory_seq_rm(self._context.memory, target, 0, length)
        native.llama_memory_seq_cp(self._context.memory, source, target, 0, length)

    def trim(self, sequence: int, length: int) -> bool:
        """See Backend.trim."""
        self._check(sequence)
        return bool(native.llama_memory_seq_rm(self._context.memory, sequence, length, -1))

    def release(self, sequence: int) -> None:
        """See Backend.release."""
        self._check(sequence)
        native.llama_memory_seq_rm(self._context.memory, sequence, -1, -1)

    def state_bytes(self, sequence: int) -> int:
        """See Backend.state_bytes."""
        self._check(sequence)
        return state_bytes(self._context, sequence)

    def save(self, sequence: int) -> SavedSequence:
        """See Backend.save."""
        self._check(sequence)
        return copy_out(self._context, sequence)

    def load(self, state: SavedState, sequence: int) -> None:
        """See Backend.load."""
        self._check(sequence)
        if not isinstance(state, SavedSequence):
            raise BackendError(f"a {type(state).__name__} is no state of this backend")
        copy_in(self._context, state, sequence)

    def reset(self) -> None:
        """See Backend.reset."""
        native.llama_memory_clear(self._context.memory, False)

    def embed(self, inputs: Sequence[Sequence[int]]) -> list[list[float]]:
        """Refused: a context for generation gives no embeddings."""
        raise BackendError("this model generates text; load an embedding model for embeddings")

    def close(self) -> None:
        """See Backend.close. Calling it twice is allowed."""
        self._context.close()

    def _held(self, sequence: int) -> int:
        self._check(sequence)
        return int(native.llama_memory_seq_pos_max(self._context.memory, sequence)) + 1

    def _check(self, sequence: int) -> None:
        # llama.cpp ends the process for an id that is out of range
        if not 0 <= sequence < self.capacity.max_sequences:
            raise BackendError(
                f"no sequence {sequence}; there are 0 to {self.capacity.max_sequences - 1}"
            )
