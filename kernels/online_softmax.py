"""The steps that the attention kernels share: addresses in the paged cache, scores, their softmax.

Scores are kept times log2(e), so that the softmax takes powers of two, which the hardware has. The
softmax is the online one of Milakov and Gimelshein (2018), as in FlashAttention-2 (Dao, 2023).
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def cache_rows(table, token, inside, SIZE: tl.constexpr):
    """The rows block * SIZE + offset, int64 [N], of a sequence's tokens int32 [N], by its table."""
    block = tl.load(table + token // SIZE, mask=inside, other=0).to(tl.int64)
    return block * SIZE + token % SIZE


@triton.jit
def load_rows(cache, row, inside, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of one head [N, BLOCK], as they are stored; 0 outside."""
    column = tl.arange(0, BLOCK)[None, :]
    at = cache + row[:, None] * stride + column
    return tl.load(at, mask=inside[:, None] & (column < WIDTH), other=0.0)


@triton.jit
def scale_scores(products, scale, softcap, CAPPED: tl.constexpr):
    """Scores times log2(e), of products of queries and keys."""
    scores = products * scale
    if CAPPED:
        # tanh(y) = 1 - 2 / (exp(2 y) + 1), which holds at both ends.
        scores = softcap * (1 - 2 / (tl.exp(tl.minimum(2 * scores / softcap, 80.0)) + 1))
    return scores * LOG2_E


@triton.jit
def accumulate(state, scores, values, factors, SCALED: tl.constexpr):
    """One tile into state (accumulator [M, D], highest score [M], sum [M]): scores [M, N], -inf
    where hidden; values [N, D]; factors [N] the values' scales where SCALED."""
    total, highest, weight = state
    peak = tl.maximum(highest, tl.max(scores, axis=1))
    # A row that has seen nothing has the peak -inf, and -inf - -inf is no number.
    base = tl.where(peak == float("-inf"), 0.0, peak)
    powers = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(highest - base)
    weight = weight * shrink + tl.sum(powers, axis=1)
    if SCALED:
        powers *= factors[None, :]
    total = total * shrink[:, None]
    # Float32 stays exact: the default would round it to TF32.
    total = tl.dot(powers.to(values.dtype), values, total, input_precision="ieee")
    return total, peak, weight
