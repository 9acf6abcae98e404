"""`python -m kernels.native.check LIBRARY`: does a library compute what it should on this machine?

Exit status 0: yes. Run in a process of its own, which a miscompiled library may end.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.native.attention import F16, F32, AttentionLibrary, AttentionParams, CacheTensor
from kernels.native.matmul import MatmulLibrary

Q8_0, Q4_K = 8, 12
Array = npt.NDArray[Any]
CLOSE = 0.02  # of the largest value: the columns are rounded to bytes


def check_matmul(library: Path) -> bool:
    """Whether products of random Q8_0 weights come out right, for odd shapes too."""
    products = MatmulLibrary(library)
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


def check_k_quant_matmul(library: Path) -> bool:
    """The same of Q4_K, whose scales are packed."""
    random = np.random.default_rng(2)
    rows, superblocks = 40, 3
    d, least = random.uniform(0.001, 0.1, (2, rows, superblocks, 1)).astype(np.float16)
    six = random.integers(0, 64, (rows, superblocks, 8), np.uint8)  # of the first four groups
    four = random.integers(0, 16, (2, rows, superblocks, 4), np.uint8)  # of the others
    bytes_ = random.integers(0, 256, (rows, superblocks, 128), np.uint8)
    packed = [d.view(np.uint8), least.view(np.uint8), six, four[0] | four[1] << 4, bytes_]
    weights = np.ascontiguousarray(np.concatenate(packed, axis=2).reshape(rows, -1))
    parts = bytes_.reshape(rows, superblocks, 4, 1, 32)
    values = np.concatenate([parts & 15, parts >> 4], axis=3).reshape(rows, superblocks, 8, 32)
    scale = d * np.concatenate([six[..., :4], four[0]], axis=2).astype(np.float32)
    offset = least * np.concatenate([six[..., 4:], four[1]], axis=2).astype(np.float32)
    expected = (values * scale[..., None] - offset[..., None]).reshape(rows, -1)
    x = random.standard_normal((5, 256 * superblocks), np.float32)
    found = MatmulLibrary(library).multiply(Q4_K, [weights], [x], threads=2)[0]
    return bool(np.abs(found - x @ expected.T).max() < CLOSE * np.abs(x @ expected.T).max())


def check_attention(library: Path) -> bool:
    """Whether attention of random vectors comes out right, with a mask and without."""
    random = np.random.default_rng(1)
    q = random.standard_normal((3, 4, 64), np.float32)
    k, v = (random.standard_normal((70, 2, 64)).astype(np.float16) for _ in range(2))
    mask = np.where(random.random((3, 70)) < 0.5, 0, -np.inf).astype(np.float16)
    attention = AttentionLibrary(library)
    for kind, number in ((F16, np.float16), (F32, np.float32)):
        cached = CacheTensor(k.astype(number), kind, 64), CacheTensor(v.astype(number), kind, 64)
        for added in (None, mask):
            found = attention.attend(q, *cached, AttentionParams(0.125, added), threads=2)
            if not np.allclose(found, _attention(q, k, v, added), atol=1e-4):
                return False
    return True


def _attention(q: Array, k: Array, v: Array, added: Array | None) -> Array:
    scores = np.einsum("rhd,chd->rhc", q, k.repeat(2, axis=1).astype(np.float32)) / 8
    if added is not None:
        scores += added[:, None, :].astype(np.float32)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.asarray(np.einsum("rhc,chd->rhd", weights, v.repeat(2, axis=1).astype(np.float32)))


def check_backend(library: Path) -> bool:
    """Whether ggml can take it: it was compiled for the one that is installed."""
    start = ctypes.CDLL(str(library)).ggml_backend_init
    start.restype = ctypes.c_void_p
    return bool(start())


CHECKS = (check_matmul, check_k_quant_matmul, check_attention, check_backend)

if __name__ == "__main__":
    path = Path(sys.argv[1])
    sys.exit(0 if all(check(path) for check in CHECKS) else 1)
