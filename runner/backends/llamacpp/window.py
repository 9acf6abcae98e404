"""Layers with an attention window, whose cache holds little more than that of each sequence.

llama.cpp reuses a cell of such a layer once no later token of its sequence sees it, unless several
sequences hold it. So a sequence that shares a beginning with another gets cells of its own for the
window: shared ones would stay for as long as both do. The other layers go on sharing theirs.
Sources: llama.cpp's llama-kv-cache-iswa.cpp, and find_slot and apply_ubatch of llama-kv-cache.cpp.
"""

from __future__ import annotations

import ctypes

from llama_cpp import llama_cpp as native

from runner.backends.backend import BackendError
from runner.backends.llamacpp.context import Context

_PAD_CELLS = 256  # of such a cache
_ONLY_WINDOWS = native.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY


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

    def separate(self, sequence: int) -> None:
        """Let a sequence that shares its cells have the window in cells of its own. Raises
        BackendError when it has lost the window."""
        if not self._has_room_for_all():
            return
        handle = self._context.handle
        size = native.llama_state_seq_get_size_ext(handle, sequence, _ONLY_WINDOWS)
        state = (ctypes.c_uint8 * size)()
        copied = native.llama_state_seq_get_data_ext(handle, state, size, sequence, _ONLY_WINDOWS)
        read = native.llama_state_seq_set_data_ext(handle, state, size, sequence, _ONLY_WINDOWS)
        if not size == copied == read:
            raise BackendError(f"llama.cpp could not copy the attention window of {sequence}")

    def _has_room_for_all(self) -> bool:
        """Whether each sequence can have a window of its own beside a whole batch: not where that
        is more than the other layers hold, whose size is the limit."""
        handle = self._context.handle
        sequences = native.llama_n_seq_max(handle)
        needed = self._tokens * sequences + native.llama_n_ubatch(handle)
        padded = -(-needed // _PAD_CELLS) * _PAD_CELLS
        return not self._full and padded < int(native.llama_n_ctx(handle))
