"""Rows of several owners one after the other, each owner's beginning a new block of a grid."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def segment_of(block, starts, segments, ROWS: tl.constexpr):
    """(segment, its first block) of a program, when segment i begins with block
    starts[i] // ROWS + i, which leaves room for a last block that is not full."""
    low = 0
    high = segments
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(starts + middle) // ROWS + middle <= block:
            low = middle
        else:
            high = middle
    return low, tl.load(starts + low) // ROWS + low
