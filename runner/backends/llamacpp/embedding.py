"""Embeddings with llama.cpp: a context of its own kind, which keeps nothing between calls.

Knows pooling and normalisation; generates no text. A model made for text is refused here on
purpose: its hidden states are no trained embeddings, and a second context would cost memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from runner.backends.backend import BackendError, Capacity, Row
from runner.backends.embedding import EmbeddingBackend
from runner.backends.llamacpp.batch import TokenBatch
from runner.backends.llamacpp.context import Context
from runner.types import OWN_FORM, EmbeddingForm

_NONE: int = native.LLAMA_POOLING_TYPE_NONE
_MEAN: int = native.LLAMA_POOLING_TYPE_MEAN
_CLS: int = native.LLAMA_POOLING_TYPE_CLS
_LAST: int = native.LLAMA_POOLING_TYPE_LAST
_RANK: int = native.LLAMA_POOLING_TYPE_RANK
# Architectures that llama.cpp gives no cache (llama_model::create_memory): an input is whole,
# whatever the file says of causal attention
ENCODERS = frozenset(
    (
        *("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert"),
        *("neo-bert", "eurobert", "gemma-embedding", "t5encoder"),
    )
)
_BY_NAME = {"none": _NONE, "mean": _MEAN, "cls": _CLS, "last": _LAST}


class LlamaCppEmbeddingBackend(EmbeddingBackend):
    """A context of llama.cpp that gives a vector for each sequence, or each token."""

    def __init__(
        self,
        context: Context,
        capacity: Capacity,
        *,
        step_tokens: int,
        parameters: Callable[[int], Any] | None = None,
    ) -> None:
        """step_tokens: how many tokens of several inputs are computed at a time. parameters: of a
        context that pools in some way; None: there is only one way."""
        super().__init__(
            capacity,
            step_tokens=min(step_tokens, capacity.batch_tokens),
            max_inputs=capacity.max_sequences,
        )
        self._context = context
        self._parameters = parameters
        self._own: int = native.llama_pooling_type(context.handle)
        self._pooling: int | None = self._own
        self._batch = TokenBatch(capacity.batch_tokens)

    def embed(
        self, inputs: Sequence[Sequence[int]], form: EmbeddingForm = OWN_FORM
    ) -> list[list[float]]:
        kind = self._own if form.pooling is None else _BY_NAME[form.pooling]
        if self._parameters is not None and kind != self._pooling:
            self._pooling = None  # llama.cpp pools as its context was made
            self._context.replace(self._parameters(kind))
            self._pooling = kind
        return super().embed(inputs, form)

    def _embed_group(
        self, group: Sequence[Sequence[int]], form: EmbeddingForm
    ) -> list[list[float]]:
        try:
            pieces = list(self._pieces(group))
            vectors: list[NDArray[np.float32]] = []
            for rows in pieces:
                self._fill(rows)
                self._context.decode(self._batch)
                if self._pooling == _NONE:
                    vectors.extend(self._states())
                elif len(pieces) > 1 and self._pooling in (_MEAN, _CLS):
                    vectors.append(self._pooled(0).copy())
            if self._pooling == _NONE:
                return [_normalised(vector, form) for vector in vectors]
            if vectors:
                return [_normalised(_joined(vectors, pieces, self._pooling), form)]
            return [self._vector(sequence, form) for sequence in range(len(group))]
        finally:
            if self._context.memory:
                native.llama_memory_clear(self._context.memory, False)

    def _fill(self, rows: Sequence[Row]) -> None:
        self._batch.fill(rows, all_outputs=True)

    def _pieces(self, group: Sequence[Sequence[int]]) -> Iterator[list[Row]]:
        """The group in one batch, or one long input piece by piece, each of which attends to those
        before."""
        if len(group) > 1:
            yield [Row(sequence, tokens, 0) for sequence, tokens in enumerate(group)]
            return
        tokens, size = group[0], self.capacity.batch_tokens
        for start in range(0, len(tokens), size):
            yield [Row(0, tokens[start : start + size], start)]

    def _vector(self, sequence: int, form: EmbeddingForm) -> list[float]:
        return _normalised(self._pooled(sequence), form)

    def _pooled(self, sequence: int) -> NDArray[np.float32]:
        """A view of what llama.cpp pooled of the last batch."""
        pointer = native.llama_get_embeddings_seq(self._context.handle, sequence)
        if not pointer:
            raise BackendError("llama.cpp returned no embedding")
        size = native.llama_model_n_embd_out(self._context.model)
        return np.ctypeslib.as_array(pointer, shape=(size,))

    def _states(self) -> NDArray[np.float32]:
        """The vectors of the last batch's tokens."""
        pointer = native.llama_get_embeddings(self._context.handle)
        if not pointer:
            raise BackendError("llama.cpp returned no embeddings")
        size = native.llama_model_n_embd_out(self._context.model)
        shape = (self._batch.native.n_tokens, size)
        return np.ctypeslib.as_array(pointer, shape=shape).copy()

    def close(self) -> None:
        """See Backend.close. Calling it twice is allowed."""
        self._context.close()


def _joined(
    vectors: Sequence[NDArray[np.float32]], pieces: Sequence[Sequence[Row]], pooling: int | None
) -> NDArray[np.float32]:
    """The mean, or the first token, of a whole input from those of its pieces."""
    if pooling == _CLS:
        return vectors[0]
    sizes = [len(row.tokens) for (row,) in pieces]
    return np.average(vectors, 0, sizes).astype(np.float32)


def _normalised(vector: NDArray[np.float32], form: EmbeddingForm) -> list[float]:
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(length) or length == 0.0:
        raise BackendError("the model produced an invalid embedding (NaN or all zeros)")
    return [float(value) for value in vector / np.float32(length if form.normalize else 1.0)]


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


def needs_whole_inputs(model: Any) -> bool:
    """True where an input must be computed in one piece: its tokens see those after them."""
    if metadata(model, "general.architecture") in ENCODERS:
        return True
    return _architecture_value(model, "attention.causal") == "false"
