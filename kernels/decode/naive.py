"""What decode attention means, in PyTorch; the CPU path.

One sequence after the other, neighbouring blocks read where they are: 8 sequences of 1,024 tokens
with 8 key heads of 128 in bfloat16 take 223 µs each on two cores, and 1.7 ms as one padded batch,
which has to be copied together first. The query heads of a key head are the rows of one product.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kernels.attention_spec import AttentionSpec
from kernels.cache import naive as cache
from kernels.cache.naive import CacheScales
from kernels.prefill.naive import attention_weights


def decode_attention(
    query: Tensor,
    caches: tuple[Tensor, Tensor],
    block_tables: Tensor,
    context_lengths: Tensor,
    spec: AttentionSpec,
    scales: CacheScales | None = None,
) -> Tensor:
    """[S, H, D]: one query [S, H, D] a sequence over its context_lengths int32 [S] tokens in the
    caches (keys, values) [blocks, B, K, D], itself included; zeros where that is 0. block_tables
    int32 [S, M]. The kernel's launch depends on shapes only, so that a CUDA graph can replay it
    with other lengths."""
    if not len(query):
        return torch.empty_like(query)
    lengths, size = context_lengths.tolist(), caches[0].shape[1]
    max_blocks = max(-(-length // size) for length in lengths)
    tables = block_tables[:, :max_blocks].tolist()
    packed = query.unflatten(1, (caches[0].shape[2], -1))  # [S, K, G, D]
    in_place = [pool.view(1, -1, *pool.shape[2:]).transpose(1, 2) for pool in caches]
    result = []
    for row, (table, length) in enumerate(zip(tables, lengths, strict=True)):
        # Only the blocks that the window reaches are read.
        skipped = 0 if spec.window is None else max(0, length - spec.window)
        blocks, offset = table[skipped // size : -(-length // size)], skipped % size
        seen = length - skipped
        if scales is None and caches[0].dtype == query.dtype and cache.is_contiguous(blocks):
            rows = [whole.narrow(2, blocks[0] * size + offset, seen) for whole in in_place]
        else:
            rows = [
                cache.read_cache(pool, blocks, offset + seen, query.dtype, of)[
                    None, offset:
                ].transpose(1, 2)
                for pool, of in zip(caches, cache.split_scales(scales), strict=True)
            ]
        result.append(attend_token(packed[row : row + 1], rows[0], rows[1], spec))
    return torch.cat(result).flatten(1, 2)


def attend_token(query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec) -> Tensor:
    """[1, K, G, D]: query [1, K, G, D] over all of key and value [1, K, c, D]; c of 0: zeros."""
    if key.shape[2] == 0:
        return torch.zeros_like(query)
    if spec.softcap is not None or spec.sinks is not None:
        scores = query[0].float() @ key[0].float().transpose(-1, -2) * spec.scale
        weights = attention_weights(scores[:, :, None], None, spec)[:, :, 0]
        return (weights @ value[0].float()).to(query.dtype)[None]
    return functional.scaled_dot_product_attention(query, key, value, scale=spec.scale)
