"""A model opened to be measured: text in chunks of one context each, no sampling.

Owns the native model and context for perplexity and for calibration. Knows nothing of what is
made of the outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from runner.backends.host_sampling import native_log
from runner.backends.host_sampling.library import start_library
from runner.backends.host_sampling.threads import threads_for
from runner.backends.host_sampling.tokenizer import LlamaCppTokenizer
from runner.backends.llamacpp.loader import apply_adapters, load_model, with_kernels
from runner.errors import InternalError, ModelLoadFailed
from runner.jobs.measured_model import MeasuredModel, context_of, text_chunks
from runner.types import LoadPlan

_STEP_TOKENS = 512


class EvaluationContext(MeasuredModel):
    """A model with a context for one chunk. context: its tokens. threads: for work on outputs, as
    many as the model is computed with."""

    def __init__(self, model: Any, handle: Any, context: int, threads: Executor) -> None:
        self.context = context
        self.threads = threads
        self._handle = handle
        self._vocabulary = native.llama_model_get_vocab(model)
        self._words = int(native.llama_vocab_n_tokens(self._vocabulary))
        self._batch = native.llama_batch_init(_STEP_TOKENS, 0, 1)

    def close(self) -> None:
        """Free the batch; the model and the context belong to open_model."""
        native.llama_batch_free(self._batch)

    @property
    def adds_bos(self) -> bool:
        """Whether texts begin with a token of their own."""
        return bool(native.llama_vocab_get_add_bos(self._vocabulary))

    def tokenizer(self) -> LlamaCppTokenizer:
        """Of the model, for as long as it is open."""
        return LlamaCppTokenizer(self._vocabulary)

    def chunks(self, text: str) -> list[NDArray[np.int32]]:
        return text_chunks(self._vocabulary, self.tokenizer(), text, self.context)

    def run(self, tokens: NDArray[np.int32], first: int) -> Iterator[NDArray[np.float32]]:
        native.llama_memory_clear(native.llama_get_memory(self._handle), True)
        for start in range(0, len(tokens), _STEP_TOKENS):
            part = tokens[start : start + _STEP_TOKENS]
            rows = self._decode(part, start, first)
            if rows:
                source = native.llama_get_logits(self._handle)
                yield np.ctypeslib.as_array(source, (rows, self._words))

    def _decode(self, part: NDArray[np.int32], start: int, first: int) -> int:
        batch, rows = self._batch, 0
        batch.n_tokens = len(part)
        for place, token in enumerate(part.tolist()):
            wanted = start + place >= first
            batch.token[place] = token
            batch.pos[place] = start + place
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = 0
            batch.logits[place] = wanted
            rows += wanted
        code = native.llama_decode(self._handle, batch)
        if code != 0:
            raise InternalError(f"llama.cpp failed to evaluate the text (code {code})")
        return rows


@dataclass(frozen=True, slots=True)
class Measurement:
    """How a model is opened. context: tokens of a chunk, None for 512 or what the model was trained
    for. native_kernels: hearth's, where they are. observer: llama.cpp's callback for each tensor
    that llama.cpp itself computes, or None. threads: None for what suits the model."""

    context: int | None = None
    adapters: tuple[tuple[str, float], ...] = ()
    native_kernels: bool = True
    observer: Any = None
    threads: int | None = None


@contextmanager
def open_model(path: Path, wanted: Measurement) -> Iterator[EvaluationContext]:
    """The model, until the block ends. Raises ModelLoadFailed, InvalidGguf, InvalidRequest."""
    context = context_of(path, wanted.context)
    plan = LoadPlan(
        path=str(path),
        backend="llamacpp",
        context_length=context,
        pool_tokens=context,
        max_sequences=1,
        adapters=wanted.adapters,
        native_kernels=wanted.native_kernels,
    )
    start_library()
    plan = with_kernels(plan)
    with native_log.library_errors() as library_errors, ExitStack() as stack:
        model = load_model(plan, lambda _share: None, library_errors)
        stack.callback(native.llama_model_free, model)
        handle = native.llama_init_from_model(model, _parameters(plan, model, wanted))
        if not handle:
            raise ModelLoadFailed(f"no context of {context} tokens could be made for it")
        stack.callback(native.llama_free, handle)
        if plan.adapters:
            stack.enter_context(closing(apply_adapters(plan, model, handle, library_errors)))
        threads = stack.enter_context(ThreadPoolExecutor(native.llama_n_threads(handle)))
        yield stack.enter_context(closing(EvaluationContext(model, handle, context, threads)))


def _parameters(plan: LoadPlan, model: Any, wanted: Measurement) -> Any:
    params = native.llama_context_default_params()
    params.n_ctx = plan.context_length
    params.n_batch = params.n_ubatch = min(_STEP_TOKENS, plan.context_length)
    if plan.flash_attention:
        params.flash_attn_type = native.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.n_seq_max = 1
    threads = wanted.threads or threads_for(native.llama_model_size(model))
    params.n_threads = params.n_threads_batch = threads
    params.no_perf = True
    if wanted.observer is not None:
        params.cb_eval = wanted.observer
        params.cb_eval_user_data = ctypes.c_void_p(0)
    return params
