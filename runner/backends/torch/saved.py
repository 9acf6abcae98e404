"""Sequences copied out of the paged cache into the machine's memory and back.

Knows caches and blocks, not when that is worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runner.backends.backend import BackendError
from runner.backends.torch.attention import LayerCache

Tensor = Any


@dataclass(frozen=True, slots=True)
class SavedSequence:
    """Keys and values of one sequence, for each layer [tokens, heads, head_dim]."""

    tokens: int
    layers: tuple[tuple[Tensor, Tensor], ...]

    @property
    def size_bytes(self) -> int:
        """See SavedState."""
        return sum(part.numel() * part.element_size() for pair in self.layers for part in pair)


def state_bytes(caches: Sequence[LayerCache], tokens: int) -> int:
    """What a copy of so many tokens takes."""
    parts = [part for cache in caches for part in (cache.keys, cache.values)]
    return tokens * sum(int(part[0, 0].numel() * part.element_size()) for part in parts)


def copy_out(caches: Sequence[LayerCache], blocks: Sequence[int], tokens: int) -> SavedSequence:
    """The tokens in blocks. Raises BackendError when memory is short."""
    try:
        pairs = [
            (_rows(cache.keys, blocks, tokens), _rows(cache.values, blocks, tokens))
            for cache in caches
        ]
    except (RuntimeError, MemoryError) as error:
        raise BackendError(f"no memory for a copy of {tokens} tokens: {error}") from error
    return SavedSequence(tokens, tuple(pairs))


def copy_in(caches: Sequence[LayerCache], blocks: Sequence[int], saved: SavedSequence) -> None:
    """Write the copy into blocks, which have room for it."""
    for cache, (keys, values) in zip(caches, saved.layers, strict=True):
        _write(cache.keys, blocks, keys)
        _write(cache.values, blocks, values)


def _rows(cache: Tensor, blocks: Sequence[int], tokens: int) -> Tensor:
    index = torch.tensor(blocks, device=cache.device)
    return cache[index].flatten(0, 1)[:tokens].to("cpu", copy=True)


def _write(cache: Tensor, blocks: Sequence[int], rows: Tensor) -> None:
    size = cache.shape[1]
    for at, block in enumerate(blocks):
        part = rows[at * size : (at + 1) * size]
        cache[block, : len(part)] = part.to(cache.device)
