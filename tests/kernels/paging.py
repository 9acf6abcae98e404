"""Paged caches to test attention on, and attention over them written out one score at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.attention_spec import AttentionSpec
from kernels.cache.naive import CacheScales
from kernels.rope.naive import quantize_rows
from tests.kernels.tolerances import normal


@dataclass(frozen=True, slots=True)
class Heads:
    """The shape of one attention layer."""

    key_heads: int
    group: int
    width: int


@dataclass(frozen=True, slots=True)
class Paged:
    """A cache of 40 blocks full of numbers, and tables that take blocks from it at random."""

    caches: tuple[Tensor, Tensor]
    tables: Tensor
    scales: CacheScales | None = None

    def context(self, sequence: int, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values [length, K, D] of one sequence, gathered token by token."""
        size = self.caches[0].shape[1]
        blocks = [int(self.tables[sequence, token // size]) for token in range(length)]
        offsets = [token % size for token in range(length)]
        keys, values = (cache[blocks, offsets].float() for cache in self.caches)
        if self.scales is not None:
            keys = keys * self.scales.keys[blocks, offsets][..., None]
            values = values * self.scales.values[blocks, offsets][..., None]
        return keys, values


def paged(heads: Heads, sequences: int, size: int, dtype: torch.dtype, longest: int = 200) -> Paged:
    """A cache in dtype whose tables have room for longest tokens a sequence."""
    shape = (40, size, heads.key_heads, heads.width)
    caches = (normal(*shape, dtype=dtype, seed=1), normal(*shape, dtype=dtype, seed=2))
    generator = torch.Generator().manual_seed(3)
    tables = torch.randint(40, (sequences, -(-longest // size)), generator=generator)
    return Paged(caches, tables.int())


def quantized(source: Paged, dtype: torch.dtype) -> Paged:
    """The same cache in int8 or float8_e4m3fn."""
    keys, values = (quantize_rows(cache.flatten(0, 1), dtype) for cache in source.caches)
    shape = source.caches[0].shape
    scales = CacheScales(keys[1].view(shape[:3]), values[1].view(shape[:3]))
    return Paged((keys[0].view(shape), values[0].view(shape)), source.tables, scales)


def attend(query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec) -> Tensor:
    """[t, H, D] in float32, of the last t tokens' query over key, value [c, K, D], by the
    definition: every score by itself."""
    tokens, heads, _ = query.shape
    context, group = len(key), heads // key.shape[1]
    result = torch.zeros(query.shape)
    for token in range(tokens):
        at = context - tokens + token
        seen = [of for of in range(context) if sees(at, of, spec)]
        for head in range(heads):
            scores = key[seen, head // group].float() @ query[token, head].float() * spec.scale
            if spec.softcap is not None:
                scores = spec.softcap * torch.tanh(scores / spec.softcap)
            weights = scores.exp()
            sink = 0.0 if spec.sinks is None else math.exp(float(spec.sinks[head]))
            shares = weights / (weights.sum() + sink)
            result[token, head] = shares @ value[seen, head // group].float()
    return result


def sees(at: int, of: int, spec: AttentionSpec) -> bool:
    """Whether the token at one position sees the one of another."""
    if spec.causal and of > at:
        return False
    return spec.window is None or abs(at - of) < spec.window
