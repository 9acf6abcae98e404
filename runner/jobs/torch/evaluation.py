"""A model opened by PyTorch to be measured: text in chunks of one context each, no sampling.

See runner/jobs/llamacpp/evaluation.py, its other kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from runner.backends.host_sampling.threads import threads_for
from runner.backends.torch.attention.paged import PagedAttentionStep, create_caches
from runner.backends.torch.config import DecoderShape
from runner.backends.torch.layers.decoder import Decoder
from runner.backends.torch.loading.loader import build_model
from runner.backends.torch.loading.source import open_source
from runner.backends.torch.loading.weights import WeightPlacement
from runner.backends.torch.tokenizer import read_vocabulary
from runner.errors import InvalidRequest
from runner.jobs.measured_model import MeasuredModel, context_of, text_chunks

_BLOCK = 16  # tokens of the cache
_ROWS = 128  # of logits at a time


@dataclass(frozen=True, slots=True)
class TorchMeasurement:
    """How a model is opened. context: tokens of a chunk, None for 512 or what the model was trained
    for. quantize: what floats become while loading."""

    context: int | None = None
    adapters: Sequence[tuple[str, float]] = ()
    native_kernels: bool = True
    quantize: str | None = None


class TorchMeasuredModel(MeasuredModel):
    """A decoder with a cache for one chunk."""

    def __init__(self, path: Path, model: Decoder, shape: DecoderShape, context: int) -> None:
        self.context = context
        self.threads: Executor = ThreadPoolExecutor(torch.get_num_threads())
        self._path = path
        self._model = model
        self._shape = shape

    def chunks(self, text: str) -> list[NDArray[np.int32]]:
        return chunks_of(self._path, text, self.context)

    def run(self, tokens: NDArray[np.int32], first: int) -> Iterator[NDArray[np.float32]]:
        given = torch.from_numpy(tokens).long()
        with torch.inference_mode():
            step = chunk_step(self._shape, len(given))
            hidden = self._model.forward(given, step)[first:]
            for part in hidden.split(_ROWS):
                yield self._model.logits(part).numpy()


@contextmanager
def open_torch_model(path: Path, wanted: TorchMeasurement) -> Iterator[TorchMeasuredModel]:
    """The model, until the block ends. Raises ModelLoadFailed, InvalidRequest, InvalidGguf."""
    context = context_of(path, wanted.context)
    if wanted.adapters:
        raise InvalidRequest(
            "a model with adapters is not measured by PyTorch; measure the model without them"
        )
    source = open_source(path)
    torch.set_num_threads(threads_for(source.weights.size_bytes))
    # In float32, whatever the model computes in when it answers: what is measured are its weights.
    place = WeightPlacement(
        torch.float32,
        torch.device("cpu"),
        context,
        native=wanted.native_kernels,
        quantize=wanted.quantize,
    )
    with torch.inference_mode():
        model = build_model(source, place)
    if not isinstance(model, Decoder):
        raise InvalidRequest("the model is an encoder and has no perplexity")
    opened = TorchMeasuredModel(path, model, source.config.shape, context)
    with opened.threads:
        yield opened


def chunks_of(path: Path, text: str, context: int) -> list[NDArray[np.int32]]:
    """See text_chunks; path: of a model file. Raises InvalidRequest, ModelLoadFailed."""
    tokenizer = read_vocabulary(path).tokenizer
    return text_chunks(tokenizer.native_vocabulary, tokenizer, text, context)


def chunk_step(shape: DecoderShape, tokens: int) -> PagedAttentionStep:
    """The attention of one chunk, computed in one go. All layers have the same cache: each reads
    only what it has just written."""
    blocks = -(-tokens // _BLOCK)
    cache = create_caches(1, (blocks, _BLOCK, shape.heads_kv, shape.head), torch.float32, "cpu")
    positions = torch.arange(tokens)
    return PagedAttentionStep(
        caches=cache * shape.layers,
        positions=positions,
        slots=positions,
        block_tables=torch.arange(blocks, dtype=torch.int32)[None],
        query_starts=torch.tensor([0, tokens], dtype=torch.int32),
        context_lengths=torch.tensor([tokens], dtype=torch.int32),
        decodes=0,
    )
