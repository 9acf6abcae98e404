"""Sampling as one Triton kernel a row, without sorting: penalties and bias aside.

top_k and top_p each leave the logits above a threshold. It is found bit by bit in the order of
float32 numbers: a pass over the row counts (or sums) what lies above the next three candidates.
The random numbers are those of kernels/sampling/noise.py. Here all tokens with the very logit at
the border of top_k stay; of top_p too.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.sampling.naive import NAN_TOKEN, Draw
from kernels.sampling.noise import GROUP

_BLOCK = 4096
_GROUP = tl.constexpr(GROUP)
_NAN = tl.constexpr(NAN_TOKEN)


@triton.jit
def _mix64(x):
    x = x + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _mix32(x):
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def _exponential(key, number):
    """See kernels.sampling.noise.exponentials; key uint64, number int32 [N]."""
    mixed = _mix32(number.to(tl.uint32) * 0x9E3779B1 + key.to(tl.uint32))
    mixed = _mix32(mixed ^ (key >> 32).to(tl.uint32))
    v = (mixed.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    v = tl.minimum(v, 0.99999994)
    return tl.where(v < 1e-3, v + 0.5 * v * v, -tl.log(1 - v))


@triton.jit
def _load(logits, mask, begin, size, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """A block of the row, -inf outside it and where its bit in the mask is 0."""
    token = begin + tl.arange(0, BLOCK)
    inside = token < size
    value = tl.load(logits + token, mask=inside, other=float("-inf"))
    if MASKED:
        word = tl.load(mask + token // 32, mask=inside, other=0)
        value = tl.where((word >> (token % 32)) & 1 != 0, value, float("-inf"))
    return value


@triton.jit
def _ordered(value):
    """float32 as uint32 in the same order."""
    bits = value.to(tl.uint32, bitcast=True)
    return tl.where(bits >> 31 != 0, bits ^ 0xFFFFFFFF, bits | 0x80000000)


@triton.jit
def _measure(value, threshold, best, floor, SUMS: tl.constexpr):
    """How many of value lie at threshold and above, or their probability times a constant."""
    above = _ordered(value) >= threshold
    if SUMS:
        share = tl.where(above & (value >= floor), tl.exp(value - best), 0.0)
    else:
        share = tl.where(above, 1.0, 0.0)
    return tl.sum(share, axis=0)


@triton.jit
def _threshold(
    logits, mask, size, wanted, best, floor, SUMS: tl.constexpr, MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The highest logit such that the tokens from it on measure at least wanted. Those below
    floor measure nothing."""
    found = tl.full([], 0, tl.uint32)
    one = tl.full([], 1 << 30, tl.uint32)
    for _ in range(16):
        first, second, third = found + one, found + 2 * one, found + 3 * one
        of_first = 0.0
        of_second = 0.0
        of_third = 0.0
        for begin in range(0, size, BLOCK):
            value = _load(logits, mask, begin, size, MASKED, BLOCK)
            of_first += _measure(value, first, best, floor, SUMS)
            of_second += _measure(value, second, best, floor, SUMS)
            of_third += _measure(value, third, best, floor, SUMS)
        found += tl.where(of_first >= wanted, one, tl.zeros_like(one))
        found += tl.where(of_second >= wanted, one, tl.zeros_like(one))
        found += tl.where(of_third >= wanted, one, tl.zeros_like(one))
        one = one >> 2
    bits = tl.where(found >> 31 != 0, found & 0x7FFFFFFF, found ^ 0xFFFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _mass(logits, mask, size, best, floor, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    total = 0.0
    for begin in range(0, size, BLOCK):
        value = _load(logits, mask, begin, size, MASKED, BLOCK)
        total += tl.sum(tl.where(value >= floor, tl.exp(value - best), 0.0), axis=0)
    return total


@triton.jit
def _best_of(logits, mask, size, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """(highest logit, the lowest token that has it, how many NaN)."""
    best = float("-inf")
    token = 0
    broken = 0
    for begin in range(0, size, BLOCK):
        value = _load(logits, mask, begin, size, MASKED, BLOCK)
        broken += tl.sum((value != value).to(tl.int32), axis=0)
        value = tl.where(value != value, float("-inf"), value)
        peak = tl.max(value, axis=0)
        at = begin + tl.argmax(value, axis=0, tie_break_left=True)
        token = tl.where(peak > best, at, token)
        best = tl.maximum(best, peak)
    return best, token, broken


@triton.jit
def _draw(
    logits, mask, size, best, floor, heat, key, MASKED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """A token among those with logits from floor on: first its group, then itself."""
    GROUPS: tl.constexpr = BLOCK // _GROUP
    score = -1.0
    group = 0
    for begin in range(0, size, BLOCK):
        value = _load(logits, mask, begin, size, MASKED, BLOCK)
        weight = tl.where(value >= floor, tl.exp((value - best) / heat), 0.0)
        sums = tl.sum(tl.reshape(weight, [GROUPS, _GROUP]), axis=1)
        number = begin // _GROUP + tl.arange(0, GROUPS)
        scores = sums / _exponential(key, -1 - number)
        peak = tl.max(scores, axis=0)
        at = begin // _GROUP + tl.argmax(scores, axis=0, tie_break_left=True)
        group = tl.where(peak > score, at, group)
        score = tl.maximum(score, peak)
    value = _load(logits, mask, group * _GROUP, size, MASKED, _GROUP)
    weight = tl.where(value >= floor, tl.exp((value - best) / heat), 0.0)
    token = group * _GROUP + tl.arange(0, _GROUP)
    scores = weight / _exponential(key, token)
    return group * _GROUP + tl.argmax(scores, axis=0, tie_break_left=True)


@triton.jit
def _sample_kernel(
    logits, mask, temperatures, top_ks, top_ps, min_ps, seeds, steps, out, size, stride,
    mask_stride, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    if MASKED:
        mask += row * mask_stride
    heat = tl.load(temperatures + row)
    top_k = tl.load(top_ks + row).to(tl.int32)
    best, token, broken = _best_of(logits, mask, size, MASKED, BLOCK)
    if broken > 0:
        token = tl.full([], _NAN, tl.int32)
    elif (heat > 0) & (top_k != 1) & (tl.abs(best) < float("inf")):
        top_p = tl.load(top_ps + row)
        min_p = tl.load(min_ps + row)
        floor = best + float("-inf")
        if (top_k > 0) & (top_k < size):
            floor = _threshold(
                logits, mask, size, top_k.to(tl.float32), best, floor, False, MASKED, BLOCK
            )
        if top_p < 1:
            wanted = top_p * _mass(logits, mask, size, best, floor, MASKED, BLOCK)
            # What is summed in another order must not miss the last token, nor the first.
            wanted = tl.maximum(wanted, 1e-30)
            least = _threshold(logits, mask, size, wanted, best, floor, True, MASKED, BLOCK)
            floor = tl.maximum(floor, least)
        if min_p > 0:
            floor = tl.maximum(floor, best + tl.log(tl.minimum(min_p, 1.0)))
        seed = tl.load(seeds + row).to(tl.uint64)
        key = _mix64(_mix64(seed) + tl.load(steps + row).to(tl.uint64))
        token = _draw(logits, mask, size, best, floor, heat, key, MASKED, BLOCK)
    tl.store(out + row, token.to(tl.int64))


def sample(logits: Tensor, draw: Draw, mask: Tensor | None = None) -> Tensor:
    """See kernels.sampling.naive."""
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    out = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    if len(logits):
        _sample_kernel[(len(logits),)](
            logits, mask, draw.temperature, draw.top_k, draw.top_p, draw.min_p, draw.seeds,
            draw.steps, out, logits.shape[1], logits.stride(0),
            0 if mask is None else mask.stride(0),
            MASKED=mask is not None,
            BLOCK=_BLOCK,
            num_warps=16,
        )  # fmt: skip
    return out
