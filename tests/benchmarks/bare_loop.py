"""The yardstick: a bare llama_decode loop in one process, without server, scheduler or text.

python -m tests.benchmarks.bare_loop MODEL --sequences 8 prints one line of JSON. All sequences are
prefilled (a shared prefix once, then shared by llama_memory_seq_cp), then decode greedily in
lockstep, one llama_decode a step. What a server loses against it is the price of serving. On a
busy machine run it with GOMP_SPINCOUNT=1000 in the environment, as hearth's workers do.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import llama_cpp as llama
import numpy as np
import psutil
from numpy.typing import NDArray

from runner.backends.host_sampling.library import start_library
from runner.backends.llamacpp.context import Context
from runner.backends.llamacpp.kernels import register_kernels
from runner.backends.llamacpp.thread_count import ThreadCount

_QUIET = llama.llama_log_callback(lambda level, text, data: None)  # used until the process ends


@dataclass(frozen=True, slots=True)
class DecodeLoopRun:
    """What to run: the sizes of the prompts and answers, and the context's settings. Their
    defaults are what hearth's memory plan gives a model of this size with memory to spare."""

    model: str
    sequences: int = 1
    prompt_tokens: int = 128
    shared_tokens: int = 0
    output_tokens: int = 128
    context_tokens: int = 32_768
    context_sequences: int = 40
    batch_tokens: int = 512
    threads: int = psutil.cpu_count(logical=False) or 1
    kernels: int = 0  # 1: hearth's own in llama.cpp
    choose_threads: int = 0  # 1: at most threads, as hearth's workers choose them for each step


@dataclass(frozen=True, slots=True)
class DecodeLoopResult:
    """Durations in seconds. decode_tokens_per_s counts all sequences; the first token of each
    belongs to the prefill."""

    prefill_s: float
    decode_s: float
    decode_tokens_per_s: float
    output_tokens_per_s: float
    rss_bytes: int


class Loop:
    """One context with a unified cache of keys and values, and one reused batch."""

    def __init__(self, run: DecodeLoopRun) -> None:
        start_library()
        llama.llama_log_set(_QUIET, ctypes.c_void_p(0))
        params = llama.llama_model_default_params()
        if run.kernels and not register_kernels():
            raise SystemExit("there are no kernels of hearth's here")
        params.use_extra_bufts = not run.kernels
        self._model = llama.llama_model_load_from_file(run.model.encode(), params)
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {run.model}")
        self._context = llama.llama_init_from_model(self._model, context_params(run))
        if not self._context:
            raise SystemExit(f"llama.cpp cannot make a context for {run.model}")
        threads = ThreadCount(run.threads) if run.choose_threads else None
        self._decoder = Context(self._model, self._context, threads=threads)
        self.vocabulary = self._decoder.vocabulary_size
        self._memory = self._decoder.memory
        self._batch = llama.llama_batch_init(run.batch_tokens, 0, 1)

    def decode(self, rows: Sequence[tuple[int, int, int, bool]]) -> None:
        """Compute rows of (sequence, token, position, wants logits) in one call."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for index, (sequence, token, position, wanted) in enumerate(rows):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = wanted
        self._decoder.decode_native(batch)

    def best(self, row: int) -> int:
        """The most likely token after the row of the last decode. Waits for the computation."""
        pointer = llama.llama_get_logits_ith(self._context, row)
        logits: NDArray[np.float32] = np.ctypeslib.as_array(pointer, (self.vocabulary,))
        return int(logits.argmax())

    def share(self, source: int, target: int, length: int) -> None:
        """target starts with the first length tokens of source."""
        llama.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def clear(self) -> None:
        """Forget everything computed so far."""
        llama.llama_memory_clear(self._memory, True)


def context_params(run: DecodeLoopRun) -> llama.llama_context_params:
    """A context as hearth's llamacpp backend makes it for the same plan."""
    params = llama.llama_context_default_params()
    params.n_ctx = run.context_tokens
    params.n_batch = params.n_ubatch = run.batch_tokens
    params.n_seq_max = params.n_outputs_max = max(run.context_sequences, run.sequences)
    params.n_threads = params.n_threads_batch = run.threads
    params.kv_unified = True
    if run.kernels:
        params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
    return params


def prefill(loop: Loop, run: DecodeLoopRun) -> list[int]:
    """Compute all prompts in full batches; the first token of each answer."""
    random = np.random.default_rng(1)
    prompts = random.integers(1000, 20_000, (run.sequences, run.prompt_tokens)).tolist()
    shared = run.shared_tokens
    for start in range(0, shared, run.batch_tokens):
        end = min(start + run.batch_tokens, shared)
        loop.decode([(0, prompts[0][at], at, False) for at in range(start, end)])
    for sequence in range(1, run.sequences if shared else 0):
        loop.share(0, sequence, shared)
    rows = [
        (sequence, tokens[at], at, at == run.prompt_tokens - 1)
        for sequence, tokens in enumerate(prompts)
        for at in range(shared, run.prompt_tokens)
    ]
    first = []
    for start in range(0, len(rows), run.batch_tokens):
        chunk = rows[start : start + run.batch_tokens]
        loop.decode(chunk)
        first += [loop.best(index) for index, row in enumerate(chunk) if row[3]]
    return first


def measure(run: DecodeLoopRun) -> DecodeLoopResult:
    """Prefill, then decode output_tokens for every sequence."""
    loop = Loop(run)
    loop.decode([(0, 1000, 0, True)])
    loop.clear()
    started = time.perf_counter()
    tokens = prefill(loop, run)
    prefilled = time.perf_counter()
    for step in range(run.output_tokens - 1):
        position = run.prompt_tokens + step
        loop.decode([(sequence, token, position, True) for sequence, token in enumerate(tokens)])
        tokens = [loop.best(row) for row in range(run.sequences)]
    ended = time.perf_counter()
    return DecodeLoopResult(
        prefill_s=prefilled - started,
        decode_s=ended - prefilled,
        decode_tokens_per_s=run.sequences * (run.output_tokens - 1) / (ended - prefilled),
        output_tokens_per_s=run.sequences * run.output_tokens / (ended - started),
        rss_bytes=psutil.Process().memory_info().rss,
    )


def main() -> None:
    """The command line: every field of BareRun is an option."""
    parser = argparse.ArgumentParser(description="Measure a bare llama_decode loop.")
    parser.add_argument("model")
    for field in dataclasses.fields(DecodeLoopRun)[1:]:
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=int, default=field.default)
    result = measure(DecodeLoopRun(**vars(parser.parse_args())))
    print(json.dumps(dataclasses.asdict(result)))


if __name__ == "__main__":
    main()
