"""Reading the paged cache back, in PyTorch.

A cache is [blocks, B, K, D]; a sequence's block table lists its blocks in order. A quantized
cache (int8, float8_e4m3fn) has a float32 scale for each token and head, [blocks, B, K].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class CacheScales:
    """The scales of a quantized cache, float32 [blocks, B, K], of its keys and its values."""

    keys: Tensor
    values: Tensor


def read_cache(
    cache: Tensor, blocks: Sequence[int], length: int, dtype: torch.dtype, scales: Tensor | None
) -> Tensor:
    """The first length rows of the blocks, [length, K, D] in dtype; a view where it can be."""
    rows = _gather(cache, blocks)[:length]
    if scales is not None:
        return (rows.float() * _gather(scales, blocks)[:length, :, None]).to(dtype)
    return rows if rows.dtype == dtype else rows.to(dtype)


def is_contiguous(blocks: Sequence[int]) -> bool:
    """Whether there are blocks and they follow one another."""
    if not blocks:
        return False
    first, count = blocks[0], len(blocks)
    return blocks[-1] - first == count - 1 and list(blocks) == list(range(first, first + count))


def split_scales(scales: CacheScales | None) -> tuple[Tensor | None, Tensor | None]:
    """The scales of keys and of values."""
    return (None, None) if scales is None else (scales.keys, scales.values)


def _gather(cache: Tensor, blocks: Sequence[int]) -> Tensor:
    """Neighbouring blocks need no copy, and the allocator mostly gives neighbours."""
    if not blocks:
        return cache[:0].flatten(0, 1)
    if is_contiguous(blocks):
        return cache[blocks[0] : blocks[0] + len(blocks)].flatten(0, 1)
    index = torch.tensor(blocks, device=cache.device)
    if cache.dtype == torch.float8_e4m3fn:
        return cache.view(torch.uint8).index_select(0, index).view(cache.dtype).flatten(0, 1)
    return cache.index_select(0, index).flatten(0, 1)
