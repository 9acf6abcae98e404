"""Generation with llama.cpp: many sequences in one context with a unified cache.

Sequences share cache cells, so a shared prefix is neither copied nor computed again. Knows
nothing of requests, text or fairness.
"""

from __future__ import annotations

from collections.abc import Sequence

from llama_cpp import llama_cpp as native

from runner.backends.backend import (
    BackendError,
    Capacity,
    Row,
    RowFault,
    Sampled,
    Sampler,
    SavedState,
)
from runner.backends.llamacpp.batch import Batch
from runner.backends.llamacpp.chain import Candidates
from runner.backends.llamacpp.context import Context
from runner.backends.llamacpp.logprobs import logprobs
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
        self._batch.fill(rows)
        self._context.decode(self._batch)
        return self._sample(sampled)

    def _sample(self, rows: Sequence[Row]) -> list[Sampled]:
        if not rows:
            return []
        logits = self._context.logits(len(rows))
        results = [_choose(row.sequence, row.sampler, logits[at]) for at, row in enumerate(rows)]
        sampled = [result for result in results if result is not None]
        if len(sampled) < len(rows):
            good = {result.sequence for result in sampled}
            raise RowFault(
                "the model computed no usable probabilities (NaN) for the next token; its file may "
                "be damaged or its cache type too small",
                sampled=sampled,
                sequences=[row.sequence for row in rows if row.sequence not in good],
            )
        return sampled

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


def _choose(sequence: int, sampler: Sampler | None, logits: FloatRow) -> Sampled | None:
    assert isinstance(sampler, LlamaCppSampler)
    token = sampler.choose(logits)
    if token is None:
        return None
    count = sampler.params.logprobs
    if count is None:
        return Sampled(sequence, token)
    logprob, top = logprobs(logits, token, count)
    return Sampled(sequence, token, logprob, top)
