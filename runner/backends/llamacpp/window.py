"""Layers with an attention window, whose cache holds little more than that of each sequence.

llama.cpp reuses a cell of such a layer once no later token of its sequence sees it, unless several
sequences hold it. So a sequence that shares a beginning with another gets cells of its own for the
window: shared ones would stay for as long as both do. The other layers go on sharing theirs. Where
windows for all sequences are more than the cache holds tokens, the cells are shared: then there are
never more of them than of the other layers.

Sources: llama.cpp's llama-kv-cache-iswa.cpp, and find_slot and apply_ubatch of llama-kv-cache.cpp.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING

from llama_cpp import llama_cpp as native

from runner.backends.backend import BackendError
from runner.backends.llamacpp.context import Context

_PAD_CELLS = 256  # of such a cache
_BEGINNING_BYTES = 16  # of a state: a mark, its sequence, the numbers of streams and of cells
_ONLY_WINDOWS = native.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY

if TYPE_CHECKING:
    _State = ctypes.Array[ctypes.c_uint8]


class AttentionWindow:
    """What a context still has of the windows of its sequences."""

    def __init__(self, context: Context, *, full: bool) -> None:
        """full: its layers with a window hold as many tokens as the others."""
        self._context = context
        self._tokens = int(native.llama_model_n_swa(context.model))
        self._full = full

    def min_length(self, sequence: int) -> int:
        """Of the sequence's first tokens so many at least can be gone on from: the token after
        them sees no position that has left."""
        first = int(native.llama_memory_seq_pos_min(self._context.memory, sequence))
        return first + self._tokens - 1 if first > 0 else 0

    def separate(self, sequences: Iterable[int]) -> None:
        """Let sequences that share their cells have the window in cells of their own. Raises
        BackendError when they have lost it."""
        if not self._has_room_for_all():
            return
        memory = self._context.memory
        held = [one for one in sequences if native.llama_memory_seq_pos_max(memory, one) >= 0]
        states = [self._copied(sequence) for sequence in held]
        if len(held) > 1:  # first all of them leave: together with the copies there are too many
            for sequence, state in zip(held, states, strict=True):
                self._put(sequence, state, _BEGINNING_BYTES)
        for sequence, state in zip(held, states, strict=True):
            if self._put(sequence, state, len(state)) != len(state):
                raise BackendError(f"no room for the attention window of sequence {sequence}")

    def _copied(self, sequence: int) -> _State:
        handle = self._context.handle
        size = native.llama_state_seq_get_size_ext(handle, sequence, _ONLY_WINDOWS)
        state: _State = (ctypes.c_uint8 * size)()
        if (
            native.llama_state_seq_get_data_ext(handle, state, size, sequence, _ONLY_WINDOWS)
            != size
        ):
            raise BackendError(f"the attention window of sequence {sequence} cannot be copied")
        return state

    def _put(self, sequence: int, state: _State, size: int) -> int:
        """The window leaves, and what is in state comes in its place if that is whole."""
        handle = self._context.handle
        return int(
            native.llama_state_seq_set_data_ext(handle, state, size, sequence, _ONLY_WINDOWS)
        )

    def _has_room_for_all(self) -> bool:
        """Whether each sequence can have a window of its own beside a whole batch: not where that
        is more than the other layers hold, whose size is the limit."""
        handle = self._context.handle
        sequences = native.llama_n_seq_max(handle)
        needed = self._tokens * sequences + native.llama_n_ubatch(handle)
        padded = -(-needed // _PAD_CELLS) * _PAD_CELLS
        return not self._full and padded < int(native.llama_n_ctx(handle))
