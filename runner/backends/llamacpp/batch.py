"""The one batch of tokens that is handed to llama.cpp, kept and refilled for every step.

Owns its arrays; the native structure points into them, so nothing is allocated per step. Knows
the layout of llama_batch, nothing of sampling.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from runner.backends.backend import BackendError, Row
from runner.backends.llamacpp.vision.positions import SequencePositions


class TokenBatch:
    """At most capacity tokens, each of exactly one sequence."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._token = np.zeros(capacity, np.int32)
        self._position = np.zeros(capacity, np.int32)
        self._sequence = np.zeros(capacity, np.int32)
        self._output = np.zeros(capacity, np.int8)
        self._one = np.ones(capacity, np.int32)
        self._vectors: NDArray[np.float32] | None = None
        # seq_id[i] is a pointer to the ids of token i; each token has one id, its own slot here
        self._sequence_of = self._sequence.ctypes.data + 4 * np.arange(capacity, dtype=np.uintp)
        self.native = native.llama_batch(
            n_tokens=0,
            token=_pointer(self._token, native.llama_token),
            embd=None,
            pos=_pointer(self._position, native.llama_pos),
            n_seq_id=_pointer(self._one, ctypes.c_int32),
            seq_id=_pointer(self._sequence_of, ctypes.POINTER(native.llama_seq_id)),
            logits=_pointer(self._output, ctypes.c_int8),
        )

    def fill(
        self,
        rows: Sequence[Row],
        *,
        all_outputs: bool = False,
        sequence_positions: SequencePositions | None = None,
    ) -> None:
        """Lay out rows one after the other. The last token of a row with a sampler is an
        output, and so are its draft and those before the targets of a row with scoring; with
        all_outputs every token is. sequence_positions: where positions are not the numbers of
        tokens. Raises BackendError, the batch unusable."""
        tokens: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        outputs: list[int] = []
        for row in rows:
            if not row.tokens:
                raise BackendError(f"the row of sequence {row.sequence} has no tokens")
            count = len(row.tokens) + len(row.draft)
            tokens.extend(row.tokens)
            tokens.extend(row.draft)
            first = (
                row.position
                if sequence_positions is None
                else sequence_positions.position(row.sequence, row.position)
            )
            positions.extend(range(first, first + count))
            sequences.extend([row.sequence] * count)
            if row.scoring is not None:
                start = len(tokens) - count
                outputs.extend(range(start, start + len(row.scoring.targets)))
            if row.sampler is not None:
                outputs.extend(range(len(tokens) - 1 - len(row.draft), len(tokens)))
        if self._vectors is not None:
            self._vectors, self.native.embd = None, None
            self.native.token = _pointer(self._token, native.llama_token)
        self._store(tokens, positions, sequences)
        self._output[: len(tokens)] = 1 if all_outputs else 0
        self._output[outputs] = 1

    @property
    def output_numbers(self) -> list[int]:
        """For each token its number among the outputs, or -1."""
        marks = self._output[: self.native.n_tokens]
        return [int(n) for n in np.where(marks, marks.cumsum(dtype=np.int64) - 1, -1)]

    def use_vectors(self, vectors: NDArray[np.float32]) -> None:
        """Compute from vectors [tokens, width] in place of the tokens, until the next fill."""
        if len(vectors) != self.native.n_tokens:
            raise BackendError(f"{len(vectors)} vectors for {self.native.n_tokens} tokens")
        self._vectors = np.ascontiguousarray(vectors, np.float32)
        self.native.token = None
        self.native.embd = _pointer(self._vectors, ctypes.c_float)

    def _store(self, tokens: list[int], positions: list[int], sequences: list[int]) -> None:
        count = len(tokens)
        if not 0 < count <= self.capacity:
            raise BackendError(f"a step of {count} tokens; 1 to {self.capacity} fit in one batch")
        try:
            self._token[:count] = tokens
        except OverflowError as error:
            raise BackendError(f"a step contains an invalid token: {error}") from None
        self._position[:count] = positions
        self._sequence[:count] = sequences
        self.native.n_tokens = count


def _pointer(array: NDArray[np.generic], kind: type) -> ctypes._Pointer:  # type: ignore[type-arg]
    return array.ctypes.data_as(ctypes.POINTER(kind))
