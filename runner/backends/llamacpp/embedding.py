"""Embeddings with llama.cpp: a context of its own kind, which keeps nothing between calls.

Knows pooling and normalisation; generates no text. A model made for text is refused here on
purpose: its hidden states are no trained embeddings, and a second context would cost memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from runner.backends.backend import BackendError, Capacity, Row, SampledToken, Sampler, SavedState
from runner.backends.llamacpp.batch import TokenBatch
from runner.backends.llamacpp.context import Context
from runner.types import SamplingParams

_MEAN: int = native.LLAMA_POOLING_TYPE_MEAN
_CLS: int = native.LLAMA_POOLING_TYPE_CLS
_LAST: int = native.LLAMA_POOLING_TYPE_LAST
_RANK: int = native.LLAMA_POOLING_TYPE_RANK

_NO_GENERATION = "this model was loaded for embeddings; it generates no text"


class LlamaCppEmbeddingBackend:
    """See runner.backends.backend.Backend; only embed and close do something."""

    def __init__(self, context: Context, capacity: Capacity, *, step_tokens: int) -> None:
        """step_tokens: how many tokens of several inputs are computed at a time."""
        self.capacity = capacity
        self._context = context
        self._step_tokens = step_tokens
        self._batch = TokenBatch(capacity.batch_tokens)

    def embed(self, inputs: Sequence[Sequence[int]]) -> list[list[float]]:
        """See Backend.embed."""
        for tokens in inputs:
            if not 0 < len(tokens) <= self.capacity.context_length:
                raise BackendError(
                    f"an input of {len(tokens)} tokens; this model takes 1 to "
                    f"{self.capacity.context_length}"
                )
        vectors: list[list[float]] = []
        for group in self._groups(inputs):
            vectors.extend(self._embed_group(group))
        return vectors

    def _groups(self, inputs: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
        """Runs of inputs that fit in one batch; an input that is longer stands alone."""
        room = min(self._step_tokens, self.capacity.batch_tokens)
        group: list[Sequence[int]] = []
        size = 0
        for tokens in inputs:
            full = size + len(tokens) > room or len(group) == self.capacity.max_sequences
            if group and full:
                yield group
                group, size = [], 0
            group.append(tokens)
            size += len(tokens)
        if group:
            yield group

    def _embed_group(self, group: Sequence[Sequence[int]]) -> list[list[float]]:
        try:
            for rows in self._pieces(group):
                self._fill(rows)
                self._context.decode(self._batch)
            return [self._vector(sequence) for sequence in range(len(group))]
        finally:
            if self._context.memory:
                native.llama_memory_clear(self._context.memory, False)

    def _fill(self, rows: Sequence[Row]) -> None:
        self._batch.fill(rows, all_outputs=True)

    def _pieces(self, group: Sequence[Sequence[int]]) -> Iterator[list[Row]]:
        """The group in one batch, or one long input piece by piece: its last piece attends to
        those before, and the last token's state is the embedding."""
        if len(group) > 1:
            yield [Row(sequence, tokens, 0) for sequence, tokens in enumerate(group)]
            return
        tokens, size = group[0], self.capacity.batch_tokens
        for start in range(0, len(tokens), size):
            yield [Row(0, tokens[start : start + size], start)]

    def _vector(self, sequence: int) -> list[float]:
        pointer = native.llama_get_embeddings_seq(self._context.handle, sequence)
        if not pointer:
            raise BackendError("llama.cpp gave no embedding")
        size = native.llama_model_n_embd_out(self._context.model)
        return _normalised(np.ctypeslib.as_array(pointer, shape=(size,)))

    def create_sampler(self, params: SamplingParams) -> Sampler:
        """Refused."""
        raise BackendError(_NO_GENERATION)

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        """Refused."""
        raise BackendError(_NO_GENERATION)

    def share(self, source: int, target: int, length: int) -> None:
        """Refused."""
        raise BackendError(_NO_GENERATION)

    def merge(self, source: int, target: int, length: int) -> None:
        """Refused."""
        raise BackendError(_NO_GENERATION)

    def trim(self, sequence: int, length: int) -> bool:
        """Nothing is kept, so nothing can be trimmed."""
        return False

    def release(self, sequence: int) -> None:
        """Nothing is kept."""

    def state_bytes(self, sequence: int) -> int:
        """Nothing is kept."""
        return 0

    def save(self, sequence: int) -> SavedState:
        """Refused."""
        raise BackendError(_NO_GENERATION)

    def load(self, state: SavedState, sequence: int) -> None:
        """Refused."""
        raise BackendError(_NO_GENERATION)

    def reset(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """See Backend.close. Calling it twice is allowed."""
        self._context.close()


def _normalised(vector: NDArray[np.float32]) -> list[float]:
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(length) or length == 0.0:
        raise BackendError("the model computed no usable embedding (NaN or all zero)")
    return [float(value) for value in vector / np.float32(length)]


def metadata(model: Any, key: str) -> str | None:
    """A value of the model file's metadata as text, None where there is none."""
    buffer = ctypes.create_string_buffer(256)
    length = native.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if length >= 0 else None


def _architecture_value(model: Any, key: str) -> str | None:
    return metadata(model, f"{metadata(model, 'general.architecture')}.{key}")


def pooling_of(model: Any) -> int:
    """The model's own pooling; the mean where its file names none. Models whose file says that
    they rank, but which have nothing to do it with, are pooled by their first token."""
    own = _architecture_value(model, "pooling_type")
    kinds = {str(kind): kind for kind in (_MEAN, _CLS, _LAST)}
    return kinds.get(own or "", _CLS if own == str(_RANK) else _MEAN)


def reads_both_ways(model: Any, pooling: int) -> bool:
    """True where an input must be computed in one piece: its tokens see those after them, or
    its embedding is the mean of all."""
    causal = _architecture_value(model, "attention.causal") != "false"
    return not (causal and pooling in (_LAST, _RANK))
