"""Sequences copied out of the paged cache into the machine's memory and back.

Knows caches and blocks, not when that is worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runner.backends.backend import BackendError, SavedState
from runner.backends.torch.attention.paged import LayerCache

Tensor = Any


@dataclass(frozen=True, slots=True)
class TorchSavedSequence(SavedState):
    """What the cache has of one sequence, for each layer and tensor [tokens, heads, ...]."""

    tokens: int
    layers: tuple[tuple[Tensor, ...], ...]

    @property
    def size_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for own in self.layers for part in own)


def state_bytes(caches: Sequence[LayerCache], tokens: int) -> int:
    """What a copy of so many tokens takes."""
    parts = [part for cache in caches for part in cache.tensors]
    return tokens * sum(int(part[0, 0].numel() * part.element_size()) for part in parts)


def copy_out(
    caches: Sequence[LayerCache], blocks: Sequence[int], tokens: int
) -> TorchSavedSequence:
    """The tokens in blocks. Raises BackendError when memory is short."""
    try:
        layers = [tuple(_rows(part, blocks, tokens) for part in cache.tensors) for cache in caches]
    except (RuntimeError, MemoryError) as error:
        raise BackendError(f"not enough memory for a copy of {tokens} tokens: {error}") from error
    return TorchSavedSequence(tokens, tuple(layers))


def copy_in(caches: Sequence[LayerCache], blocks: Sequence[int], saved: TorchSavedSequence) -> None:
    """Write the copy into blocks, which have room for it."""
    for cache, rows in zip(caches, saved.layers, strict=True):
        for part, own in zip(cache.tensors, rows, strict=True):
            _write(part, blocks, own)


def _rows(cache: Tensor, blocks: Sequence[int], tokens: int) -> Tensor:
    index = torch.tensor(blocks, device=cache.device)
    return cache[index].flatten(0, 1)[:tokens].to("cpu", copy=True)


def _write(cache: Tensor, blocks: Sequence[int], rows: Tensor) -> None:
    size = cache.shape[1]
    for at, block in enumerate(blocks):
        part = rows[at * size : (at + 1) * size]
        cache[block, : len(part)] = part.to(cache.device)
