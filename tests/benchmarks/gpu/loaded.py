"""A backend over a model of random weights, as a worker has one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runner.backends.backend import Row
from runner.backends.torch.backend import TorchBackend
from runner.backends.torch.loading.adapters import LoraAdapters
from runner.backends.torch.loading.loader import LoadedModel, build_model, generator
from runner.backends.torch.loading.memory_plan import plan_memory
from runner.backends.torch.loading.weights import WeightPlacement
from runner.types import LoadPlan, SamplingParams
from tests.benchmarks.gpu.shapes import computed_bytes, random_source

ALL_LAYERS = 1000


@dataclass(frozen=True, slots=True)
class Loaded:
    """computed_bytes: the weights that a token reads; token_bytes: its part of the cache."""

    backend: TorchBackend
    computed_bytes: int
    token_bytes: float

    def prefill(self, sequence: int, tokens: int, chunk: int) -> None:
        """A prompt of so many tokens, by steps of chunk; only its last one is sampled."""
        sampler = self.backend.create_sampler(SamplingParams(temperature=0))
        for start in range(0, tokens, chunk):
            piece = [7] * min(chunk, tokens - start)
            last = start + len(piece) == tokens
            self.backend.step([Row(sequence, piece, start, sampler if last else None)])

    def decode(self, sequence: int, position: int, count: int) -> None:
        """So many tokens, one by one, each chosen before the next begins."""
        sampler, token = self.backend.create_sampler(SamplingParams(temperature=0)), 7
        for at in range(position, position + count):
            [found] = self.backend.step([Row(sequence, [token], at, sampler)])
            token = found.token


def load(values: Mapping[str, Any], quantization: str, device: str, **plan: Any) -> Loaded:
    """plan: context_length, pool_tokens, max_sequences and batch_tokens of the LoadPlan."""
    asked = LoadPlan("random", "torch", **plan, gpu_layers=ALL_LAYERS if device == "cuda" else 0)
    source = random_source(values, quantization, device)
    memory = plan_memory(source.config, asked, source.weights)
    print(f"  {values['model_type']} in {quantization}: {memory.describe()}", flush=True)
    context = min(asked.context_length, source.config.context_length)
    place = WeightPlacement(
        memory.dtype, torch.device(device), context, memory.packed, memory.narrow
    )
    with torch.inference_mode():
        adapters = LoraAdapters(None, place.dtype, place.device)
        model = build_model(source, place, adapters=adapters)
        backend = generator(asked, LoadedModel(source.config, memory, model, context, adapters))
    assert isinstance(backend, TorchBackend)
    weights = computed_bytes(source, values)
    return Loaded(backend, weights, memory.block_bytes / memory.block_size)
