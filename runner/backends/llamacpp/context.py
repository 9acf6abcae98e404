"""A loaded model with its context: the two native handles, freed exactly once, and the calls
that use them with their return codes turned into errors.

Knows nothing of sampling or of what sequences mean to the engine.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
from llama_cpp import llama_cpp as native

from runner.backends.backend import BackendError, PoolFull
from runner.backends.host_sampling.logits import LogitRows
from runner.backends.llamacpp.batch import TokenBatch
from runner.backends.llamacpp.thread_count import ThreadCount

_NO_KV_SLOT, _ABORTED, _INVALID = 1, 2, -1


class ContextAdapters(Protocol):
    """The adapters that act in all that a context computes."""

    def apply(self, context: Any) -> None:
        """Let them act in this handle of a context from here on. Raises BackendError."""

    def close(self) -> None:
        """Free them, before the model."""


class Context:
    """Takes over model and context. close gives them back, at the latest at exit."""

    def __init__(
        self,
        model: Any,
        handle: Any,
        adapters: ContextAdapters | None = None,
        threads: ThreadCount | None = None,
    ) -> None:
        """adapters: that act in all of it, applied already. threads: that compute it; None: always
        as many as it was made with."""
        self.model = model
        self.handle = handle
        self.memory = native.llama_get_memory(handle)  # None for encoder-only models
        self.vocabulary = native.llama_model_get_vocab(model)
        self.vocabulary_size: int = native.llama_vocab_n_tokens(self.vocabulary)
        self._rows: tuple[int, LogitRows] | None = None
        self._threads = threads
        resources = ExitStack()
        resources.callback(native.llama_model_free, model)
        self._adapters = adapters
        if adapters is not None:
            resources.callback(adapters.close)
        self._native = resources.enter_context(ExitStack())
        self._native.callback(native.llama_free, handle)
        self.close: Callable[[], object] = weakref.finalize(self, resources.close)

    def replace(self, parameters: Any) -> None:
        """Make the context anew, with other llama_context_params; what it kept is lost. There are
        never two. Raises BackendError when there is none now: replace it again."""
        self._native.close()
        self.handle = self.memory = self._rows = None
        self.handle = native.llama_init_from_model(self.model, parameters)
        if not self.handle:
            raise BackendError("no context could be created; memory may be short")
        self._native.callback(native.llama_free, self.handle)
        self.memory = native.llama_get_memory(self.handle)
        if self._adapters is not None:
            self._adapters.apply(self.handle)

    def decode(self, batch: TokenBatch) -> None:
        """Compute the batch. Raises PoolFull (nothing changed) or BackendError."""
        self.decode_native(batch.native)

    def decode_native(self, batch: Any) -> None:
        """Compute a llama_batch. Raises as decode does."""
        if not self.handle:
            raise BackendError("there is no context; memory may be short")
        size = batch.n_tokens
        code = self._compute(batch, size)
        if code == 0:
            return
        if code == _NO_KV_SLOT:
            raise PoolFull(f"the cache has no space for {size} more tokens")
        if code == _INVALID:
            raise BackendError(f"llama.cpp rejected a batch of {size} tokens as inconsistent")
        reason = "was aborted" if code == _ABORTED else f"failed with code {code}"
        raise BackendError(f"computing a batch of {size} tokens {reason}")

    def _compute(self, batch: Any, tokens: int) -> int:
        threads = self._threads
        if threads is None:
            return int(native.llama_decode(self.handle, batch))
        count = threads.threads(tokens)
        native.llama_set_n_threads(self.handle, count, count)
        began_s, began_processor_s = time.perf_counter(), time.process_time()
        code = int(native.llama_decode(self.handle, batch))
        if code == 0:
            used_s = time.process_time() - began_processor_s
            threads.observe(tokens, time.perf_counter() - began_s, used_s)
        return code

    def states(self, batch: TokenBatch) -> list[list[float]]:
        """The hidden states of the batch's tokens, computed with it. Raises as decode does."""
        native.llama_set_embeddings(self.handle, True)
        try:
            self.decode(batch)
            size = native.llama_model_n_embd_out(self.model)
            pointers = [
                native.llama_get_embeddings_ith(self.handle, at)
                for at in range(batch.native.n_tokens)
            ]
            if not all(pointers):
                raise BackendError("llama.cpp has no hidden states for the last batch")
            return [np.ctypeslib.as_array(each, shape=(size,)).tolist() for each in pointers]
        finally:
            native.llama_set_embeddings(self.handle, False)

    def logits(self, rows: int) -> LogitRows:
        """The logits [rows, vocabulary] of the last decode's outputs, in the order of the
        batch: a view of llama.cpp's own buffer, good until the next decode."""
        pointer = native.llama_get_logits(self.handle)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        if address is None:
            raise BackendError("llama.cpp has no logits for the last batch")
        known = self._rows
        if known is None or known[0] != address or len(known[1]) < rows:
            view = np.ctypeslib.as_array(pointer, shape=(rows, self.vocabulary_size))
            known = self._rows = (address, view)
        return known[1][:rows]
