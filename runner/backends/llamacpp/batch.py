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


class Batch:
    """At most capacity tokens, each of exactly one sequence."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._token = np.zeros(capacity, np.int32)
        self._position = np.zeros(capacity, np.int32)
        self._sequence = np.zeros(capacity, np.int32)
        self._output = np.zeros(capacity, np.int8)
        self._one = np.ones(capacity, np.int32)
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

    def fill(self, rows: Sequence[Row], *, all_outputs: bool = False) -> None:
        """Lay out rows one after the other. The last token of a row with a sampler is an
        output; with all_outputs every token is. Raises BackendError, the batch unusable."""
        tokens: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        outputs: list[int] = []
        for row in rows:
            count = len(row.tokens)
            if count == 0:
                raise BackendError(f"the row of sequence {row.sequence} has no tokens")
            tokens.extend(row.tokens)
            positions.extend(range(row.position, row.position + count))
            sequences.extend([row.sequence] * count)
            if row.sampler is not None:
                outputs.append(len(tokens) - 1)
        self._store(tokens, positions, sequences)
        self._output[: len(tokens)] = 1 if all_outputs else 0
        self._output[outputs] = 1

    def _store(self, tokens: list[int], positions: list[int], sequences: list[int]) -> None:
        count = len(tokens)
        if not 0 < count <= self.capacity:
            raise BackendError(f"a step of {count} tokens; 1 to {self.capacity} fit in one batch")
        try:
            self._token[:count] = tokens
        except OverflowError as error:
            raise BackendError(f"a step holds a number that is no token: {error}") from None
        self._position[:count] = positions
        self._sequence[:count] = sequences
        self.native.n_tokens = count


def _pointer(array: NDArray[np.generic], kind: type) -> ctypes._Pointer:  # type: ignore[type-arg]
    return array.ctypes.data_as(ctypes.POINTER(kind))
