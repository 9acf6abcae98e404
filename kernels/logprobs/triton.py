"""The sum over the vocabulary and the chosen logit in one pass a row; the top by torch.topk, which
selects by radix and does not sort the row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096


@triton.jit
def _logprob_kernel(logits, tokens, chosen, totals, size, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    highest = float("-inf")
    weight = 0.0
    for begin in range(0, size, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        value = tl.load(logits + column, mask=column < size, other=float("-inf")).to(tl.float32)
        peak = tl.maximum(highest, tl.max(value, axis=0))
        base = tl.where(peak == float("-inf"), 0.0, peak)
        weight = weight * tl.exp(highest - base) + tl.sum(tl.exp(value - base), axis=0)
        highest = peak
    total = highest + tl.log(weight)
    token = tl.load(tokens + row)
    tl.store(chosen + row, tl.load(logits + token).to(tl.float32) - total)
    tl.store(totals + row, total)


def gather_logprobs(logits: Tensor, tokens: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """See kernels.logprobs.naive."""
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    rows, size = logits.shape
    chosen = torch.empty(rows, dtype=torch.float32, device=logits.device)
    totals = torch.empty_like(chosen)
    if rows:
        _logprob_kernel[(rows,)](
            logits, tokens, chosen, totals, size, logits.stride(0), _BLOCK, num_warps=8
        )
    values, ids = logits.topk(min(top, size), dim=-1)
    return chosen, values.float() - totals[:, None], ids
