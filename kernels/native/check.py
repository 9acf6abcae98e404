"""`python -m kernels.native.check LIBRARY`: does a library compute what it should on this machine?

Exit status 0: yes. Run in a process of its own, which a miscompiled library may end.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from kernels.native.attention import F32, Attention, Cached, Scoring
from kernels.native.products import Products

Q8_0 = 8
CLOSE = 0.02  # of the largest value: the columns are rounded to bytes


def right_products(library: Path) -> bool:
    """Whether products of random Q8_0 weights come out right, for odd shapes too."""
    products = Products(library)
    random = np.random.default_rng(0)
    for rows, k, columns in ((64, 256, 1), (37, 1056, 5), (100, 3072, 19)):
        blocks = random.integers(0, 256, (rows, k // 32, 34), np.uint8)
        scales = random.uniform(0.001, 0.1, (rows, k // 32)).astype(np.float16)
        blocks[..., :2] = scales[..., None].view(np.uint8)
        weights = blocks[..., 2:].view(np.int8) * scales[..., None].astype(np.float32)
        x = random.standard_normal((columns, k), np.float32)
        expected = x @ weights.reshape(rows, k).T
        found = products.multiply(Q8_0, [blocks.reshape(rows, -1)], [x], threads=2)[0]
        if not np.abs(found - expected).max() < CLOSE * np.abs(expected).max():
            return False
    return True


def right_attention(library: Path) -> bool:
    """Whether attention of random vectors comes out right, with a mask and without."""
    random = np.random.default_rng(1)
    q = random.standard_normal((3, 4, 64), np.float32)
    k, v = (random.standard_normal((70, 2, 64), np.float32) for _ in range(2))
    mask = np.where(random.random((3, 70)) < 0.5, 0, -np.inf).astype(np.float16)
    attention, cached = Attention(library), (Cached(k, F32, 64), Cached(v, F32, 64))
    for added in (None, mask):
        scores = np.einsum("rhd,chd->rhc", q, k.repeat(2, axis=1)) / 8
        if added is not None:
            scores += added[:, None, :].astype(np.float32)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        expected = np.einsum("rhc,chd->rhd", weights, v.repeat(2, axis=1))
        found = attention.attend(q, *cached, Scoring(0.125, added), threads=2)
        if not np.allclose(found, expected, atol=1e-4):
            return False
    return True


if __name__ == "__main__":
    path = Path(sys.argv[1])
    sys.exit(0 if right_products(path) and right_attention(path) else 1)
