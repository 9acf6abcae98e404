"""Sequences copied out of llama.cpp's cache and back, in the library's own format.

A copy is made in parts of so many tokens, each a state by itself, where the model allows it: what
begins like another sequence has the same first parts. Measured for 600 tokens of Qwen3 0.6B
(70 MB): 40 ms out, 4 ms in, where computing them takes seconds. Knows nothing of when that is
worth it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence

import numpy as np
from llama_cpp import llama_cpp as native

from runner.backends.backend import BackendError, PoolFull
from runner.backends.llamacpp.context import Context
from runner.backends.llamacpp.vision.positions import ImageSpans
from runner.memory_maps import anonymous

_LENGTH = struct.Struct("<Q")  # before each part


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
            self._memory = anonymous(size_bytes)
        except OSError as error:
            raise BackendError(
                f"not enough memory for a copy of {size_bytes} bytes: {error}"
            ) from error

    def memory(self) -> memoryview:
        """See WritableState."""
        return memoryview(self._memory)

    def parts(self) -> Sequence[memoryview]:
        """See SavedParts. Raises BackendError when the memory holds something else."""
        return list(self._parts())

    def _parts(self) -> Iterator[memoryview]:
        memory, at = self.memory(), 0
        while at < self.size_bytes:
            start = at + _LENGTH.size
            at = start + (_LENGTH.unpack_from(memory, at)[0] if start <= self.size_bytes else 1)
            if at > self.size_bytes:
                raise BackendError("the copy of a sequence is not whole")
            yield memory[start:at]


class JoinedParts:
    """Parts that lie in memory of others, the files of a cache."""

    image_spans: ImageSpans = ()

    def __init__(self, parts: Sequence[memoryview], tokens: int) -> None:
        self.size_bytes = sum(map(len, parts))
        self.tokens = tokens
        self._parts = parts

    def parts(self) -> Sequence[memoryview]:
        """See SavedParts."""
        return self._parts

    def memory(self) -> memoryview:
        """See WritableState: a copy, in one piece."""
        whole = bytearray()
        for part in self._parts:
            whole += _LENGTH.pack(len(part)) + part
        self.size_bytes = len(whole)
        return memoryview(whole)


def state_bytes(context: Context, sequence: int) -> int:
    """What a copy of the sequence takes, but for the beginnings of its parts."""
    return int(native.llama_state_seq_get_size(context.handle, sequence))


class SequenceCopies:
    """Copies of the sequences of a context. scratch: a sequence of it that nobody else uses;
    None: they are made as a whole. part_tokens: of each part but the last."""

    def __init__(self, context: Context, scratch: int | None, part_tokens: int) -> None:
        self._context = context
        self._scratch = scratch
        self._part_tokens = part_tokens

    def copy_out(self, sequence: int, in_parts: bool = True) -> LlamaCppSavedSequence:
        """A copy of the sequence. in_parts False: in one, since positions are not the numbers of
        the tokens. Raises BackendError when it is empty or cannot be copied."""
        tokens = _length(self._context, sequence)
        if tokens == 0:
            raise BackendError(f"sequence {sequence} is empty: nothing to save")
        if self._scratch is None or not in_parts:
            sizes = [state_bytes(self._context, sequence)]
        else:
            sizes = [self._part_bytes(sequence, start) for start in self._starts(tokens)]
        saved = LlamaCppSavedSequence(sum(sizes) + len(sizes) * _LENGTH.size, tokens)
        at, memory = 0, saved.memory()
        for number, size in enumerate(sizes):
            _LENGTH.pack_into(memory, at, size)
            target = memory[at + _LENGTH.size : at + _LENGTH.size + size]
            if self._scratch is None or not in_parts:
                copied = self._copy(sequence, target)
            else:
                copied = self._copy_part(sequence, number * self._part_tokens, target)
            if copied != size:
                raise BackendError(
                    f"llama.cpp copied {copied} of {size} bytes of sequence {sequence}"
                )
            at += _LENGTH.size + size
        return saved

    def copy_in(self, saved: LlamaCppSavedSequence | JoinedParts, sequence: int) -> None:
        """Put a copy into an empty sequence. Raises PoolFull, whatever the reason: llama.cpp does
        not tell, and has left the sequence empty; BackendError when it is not empty before."""
        context, parts = self._context, saved.parts()
        tokens = _length(context, sequence)
        if tokens:
            raise BackendError(f"sequence {sequence} has {tokens} tokens: it must be empty to load")
        whole = len(parts) == 1 or self._scratch is None
        target = sequence if whole or self._scratch is None else self._scratch
        for part in parts:
            read = native.llama_state_seq_set_data(
                context.handle, _pointer(part), len(part), target
            )
            if target != sequence:  # reading forgets what the sequence held
                native.llama_memory_seq_cp(context.memory, target, sequence, -1, -1)
                native.llama_memory_seq_rm(context.memory, target, -1, -1)
            if read != len(part):
                break
        else:
            if _length(context, sequence) == saved.tokens:
                return
        native.llama_memory_seq_rm(context.memory, sequence, -1, -1)
        raise PoolFull(f"llama.cpp could not restore {saved.tokens} tokens into its cache")

    def _starts(self, tokens: int) -> range:
        return range(0, tokens, self._part_tokens)

    def _copy(self, sequence: int, target: memoryview) -> int:
        handle = self._context.handle
        return int(native.llama_state_seq_get_data(handle, _pointer(target), len(target), sequence))

    def _part_bytes(self, sequence: int, start: int) -> int:
        scratch = self._take_part(sequence, start)
        try:
            return state_bytes(self._context, scratch)
        finally:
            native.llama_memory_seq_rm(self._context.memory, scratch, -1, -1)

    def _copy_part(self, sequence: int, start: int, target: memoryview) -> int:
        scratch = self._take_part(sequence, start)
        try:
            return self._copy(scratch, target)
        finally:
            native.llama_memory_seq_rm(self._context.memory, scratch, -1, -1)

    def _take_part(self, sequence: int, start: int) -> int:
        assert self._scratch is not None
        memory, end = self._context.memory, start + self._part_tokens
        native.llama_memory_seq_cp(memory, sequence, self._scratch, start, end)
        return self._scratch


def _pointer(part: memoryview) -> ctypes._Pointer[ctypes.c_uint8]:
    """Of memory that may be read only."""
    return np.frombuffer(part, np.uint8).ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _length(context: Context, sequence: int) -> int:
    """Positions of the sequence: its tokens, but for images."""
    return int(native.llama_memory_seq_pos_max(context.memory, sequence)) + 1
