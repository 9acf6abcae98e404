"""Sequences copied out of llama.cpp's cache and back, in the library's own format.

Knows nothing of when that is worth it. Measured for 600 tokens of Qwen3 0.6B (70 MB): 40 ms out,
4 ms in, where computing them takes seconds.
"""

from __future__ import annotations

import ctypes
import mmap

from llama_cpp import llama_cpp as native

from runner.backends.backend import BackendError, PoolFull
from runner.backends.llamacpp.context import Context
from runner.backends.llamacpp.vision.positions import ImageSpans


class LlamaCppSavedSequence:
    """The copy of one sequence. It has memory mapped for it alone, which goes back to the system
    at once. Not in huge pages: writing 70 MB takes 8 ms in these while the system has some ready,
    but 157 once it must make them (30 in small ones), and nothing else is computed meanwhile."""

    def __init__(self, size_bytes: int, tokens: int) -> None:
        """Raises BackendError when memory is short."""
        self.size_bytes = size_bytes
        self.tokens = tokens
        self.image_spans: ImageSpans = ()  # its images, where positions are not the tokens' numbers
        try:
            self._memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise BackendError(
                f"not enough memory for a copy of {size_bytes} bytes: {error}"
            ) from error

    def memory(self) -> memoryview:
        """See WritableState."""
        return memoryview(self._memory)

    def buffer(self) -> ctypes.Array[ctypes.c_uint8]:
        """The memory as C sees it."""
        return (ctypes.c_uint8 * self.size_bytes).from_buffer(self._memory)


def state_bytes(context: Context, sequence: int) -> int:
    """What a copy of the sequence takes."""
    return int(native.llama_state_seq_get_size(context.handle, sequence))


def copy_out(context: Context, sequence: int) -> LlamaCppSavedSequence:
    """A copy of the sequence. Raises BackendError when it is empty or cannot be copied."""
    tokens = _length(context, sequence)
    if tokens == 0:
        raise BackendError(f"sequence {sequence} is empty: nothing to save")
    saved = LlamaCppSavedSequence(state_bytes(context, sequence), tokens)
    copied = native.llama_state_seq_get_data(
        context.handle, saved.buffer(), saved.size_bytes, sequence
    )
    if copied != saved.size_bytes:
        raise BackendError(
            f"llama.cpp copied {copied} of {saved.size_bytes} bytes of sequence {sequence}"
        )
    return saved


def copy_in(context: Context, saved: LlamaCppSavedSequence, sequence: int) -> None:
    """Put a copy into an empty sequence. Raises PoolFull, whatever the reason: llama.cpp does
    not tell, and has left the sequence empty; BackendError when it is not empty before."""
    tokens = _length(context, sequence)
    if tokens:
        raise BackendError(f"sequence {sequence} has {tokens} tokens: it must be empty to load")
    read = native.llama_state_seq_set_data(
        context.handle, saved.buffer(), saved.size_bytes, sequence
    )
    if read != saved.size_bytes or _length(context, sequence) != saved.tokens:
        native.llama_memory_seq_rm(context.memory, sequence, -1, -1)
        raise PoolFull(f"llama.cpp could not restore {saved.tokens} tokens into its cache")


def _length(context: Context, sequence: int) -> int:
    """Positions of the sequence: its tokens, but for images."""
    return int(native.llama_memory_seq_pos_max(context.memory, sequence)) + 1
