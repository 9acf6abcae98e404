"""What attention means, in PyTorch, one sequence after the other; the CPU path.

Token i of a sequence's context sees the tokens j <= i (causal), of them the last window ones.
A soft cap turns each score s into cap * tanh(s / cap). A sink is one more score of each head
that takes its share of the softmax and has no value. Knows nothing of models.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from kernels.attention_spec import AttentionSpec
from kernels.cache import naive as cache
from kernels.cache.naive import CacheScales

# Scores of a soft-capped attention are held in memory, this many at a time (64 MB).
_SCORES_AT_ONCE = 1 << 24


def prefill_attention(
    query: Tensor,
    caches: tuple[Tensor, Tensor],
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    spec: AttentionSpec,
    scales: CacheScales | None = None,
) -> Tensor:
    """[T, H, D]: each sequence's last tokens, query [T, H, D], over all its context in the caches
    (keys, values) [blocks, B, K, D].

    block_tables int32 [S, M]; query_starts int32 [S + 1]: where each sequence's tokens begin in
    query; context_lengths int32 [S]: with the tokens of this step.
    """
    starts, lengths = query_starts.tolist(), context_lengths.tolist()
    size = caches[0].shape[1]
    max_blocks = max((-(-length // size) for length in lengths), default=0)
    tables = block_tables[:, :max_blocks].tolist()
    result = torch.empty_like(query)
    for table, start, end, length in zip(tables, starts, starts[1:], lengths, strict=False):
        if end > start:
            blocks = table[: -(-length // size)]
            key = cache.read_cache(caches[0], blocks, length, query.dtype, scales and scales.keys)
            value = cache.read_cache(
                caches[1], blocks, length, query.dtype, scales and scales.values
            )
            result[start:end] = attend_sequence(query[start:end], key, value, spec)
    return result


def attention(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, spec: AttentionSpec
) -> Tensor:
    """[T, H, D]: query [T, H, D] over key and value [T, K, D] without a cache, each sequence by
    itself; starts int32 [S + 1] are where they begin."""
    result = torch.empty_like(query)
    edges = starts.tolist()
    for start, end in pairwise(edges):
        if end > start:
            rows = slice(start, end)
            result[rows] = attend_sequence(query[rows], key[rows], value[rows], spec)
    return result


def attend_sequence(query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec) -> Tensor:
    """[t, H, D]: the last t tokens' query [t, H, D] over the context's key, value [c, K, D]."""
    query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
    if spec.softcap is not None:
        return _explicit_attention(query, key, value, spec).transpose(0, 1)
    tokens, context = query.shape[1], key.shape[1]
    triangle = spec.causal and tokens == context > 1 and not spec.window_hides(context)
    triangle = triangle and spec.sinks is None
    seen = None if triangle else visibility_mask(tokens, context, spec, query.device)
    if spec.sinks is not None:
        key, value, seen = _with_sinks(key, value, seen, spec.sinks, tokens)
    out = functional.scaled_dot_product_attention(
        query[None],
        key[None],
        value[None],
        attn_mask=seen if seen is None or seen.dtype == torch.bool else seen.to(query.dtype),
        is_causal=triangle,
        scale=spec.scale,
        enable_gqa=key.shape[0] != query.shape[0],
    )
    return out[0].transpose(0, 1)


def visibility_mask(
    tokens: int, context: int, spec: AttentionSpec, device: torch.device
) -> Tensor | None:
    """Which of the context the last tokens see, bool [tokens, context]; None: all of it."""
    if not spec.window_hides(context) and (not spec.causal or tokens == 1):
        return None
    at = torch.arange(context - tokens, context, device=device)[:, None]
    of = torch.arange(context, device=device)
    seen = of <= at if spec.causal else torch.ones_like(of <= at)
    if spec.window is not None:
        seen &= of > at - spec.window
        if not spec.causal:
            seen &= of < at + spec.window
    return seen


def _with_sinks(
    key: Tensor, value: Tensor, seen: Tensor | None, sinks: Tensor, tokens: int
) -> tuple[Tensor, Tensor, Tensor]:
    """A sink as one more key and value of zeros whose score is the mask's."""
    context = key.shape[1]
    mask = torch.zeros(len(sinks), tokens, context + 1, device=key.device)
    if seen is not None:
        mask[..., :context].masked_fill_(~seen, -torch.inf)
    mask[..., context] = sinks.float()[:, None]
    return functional.pad(key, (0, 0, 0, 1)), functional.pad(value, (0, 0, 0, 1)), mask


def _explicit_attention(query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec) -> Tensor:
    """With the scores in memory, for the soft cap: [H, t, D] of query [H, t, D], key, value
    [K, c, D]; in float32."""
    heads, tokens, width = query.shape
    group = heads // len(key)
    seen = visibility_mask(tokens, key.shape[1], spec, query.device)
    result = torch.empty_like(query)
    step = max(1, _SCORES_AT_ONCE // (heads * key.shape[1]))
    wide_key, wide_value = key.float()[:, None], value.float()[:, None]
    for start in range(0, tokens, step):
        part = query[:, start : start + step].float().view(len(key), group, -1, width)
        scores = part @ wide_key.transpose(-1, -2) * spec.scale
        weights = attention_weights(
            scores, None if seen is None else seen[start : start + step], spec
        )
        result[:, start : start + step] = (weights @ wide_value).flatten(0, 1).to(query.dtype)
    return result


def attention_weights(scores: Tensor, seen: Tensor | None, spec: AttentionSpec) -> Tensor:
    """The softmax of scores [K, G, t, c] float32 after soft cap, mask [t, c] and sinks [H]."""
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    if spec.sinks is None:
        return torch.softmax(scores, dim=-1)
    sinks = spec.sinks.float().view(*scores.shape[:2], 1, 1).expand(*scores.shape[:3], 1)
    return torch.softmax(torch.cat((scores, sinks), dim=-1), dim=-1)[..., :-1]
