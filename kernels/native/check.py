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
from gguf import GGML_QUANT_SIZES, dequantize
from gguf import GGMLQuantizationType as GgmlType

from kernels.native.adapters import AdapterLibrary
from kernels.native.attention import AttentionLibrary, AttentionParams, CacheTensor
from kernels.native.lora import LoraMatrices
from kernels.native.matmul import MatmulLibrary

Array = npt.NDArray[Any]
CLOSE = 0.02  # of the largest value: the columns are rounded to bytes


def check_matmul(library: Path) -> bool:
    """Whether products of random weights come out right, for odd shapes too: of Q8_0, of Q4_K,
    whose scales are packed, and of F16."""
    random = np.random.default_rng(0)
    for ggml_type, factors in ((GgmlType.Q8_0, 1), (GgmlType.Q4_K, 2), (GgmlType.F16, 1)):
        block_size, block_bytes = GGML_QUANT_SIZES[ggml_type]
        for rows, k, columns in ((64, 256, 1), (37, 1280, 5), (100, 3072, 19)):
            blocks = random.integers(0, 256, (rows, k // block_size, block_bytes), np.uint8)
            scales = random.uniform(0.001, 0.1, (*blocks.shape[:2], factors)).astype(np.float16)
            blocks[..., : 2 * factors] = scales.view(np.uint8)
            weights = blocks.reshape(rows, -1)
            x = random.standard_normal((columns, k), np.float32)
            expected = x @ dequantize(weights, ggml_type).T
            found = MatmulLibrary(library).multiply(ggml_type, [weights], [x], threads=2)[0]
            if not np.abs(found - expected).max() < CLOSE * np.abs(expected).max():
                return False
    return True


def check_attention(library: Path) -> bool:
    """Whether attention of random vectors comes out right, with a mask and without."""
    random = np.random.default_rng(1)
    q = random.standard_normal((3, 4, 64), np.float32)
    k, v = (random.standard_normal((70, 2, 64)).astype(np.float16) for _ in range(2))
    mask = np.where(random.random((3, 70)) < 0.5, 0, -np.inf).astype(np.float16)
    attention = AttentionLibrary(library)
    for ggml_type, dtype in ((GgmlType.F16, np.float16), (GgmlType.F32, np.float32)):
        cache_k, cache_v = (CacheTensor(part.astype(dtype), ggml_type, 64) for part in (k, v))
        for bias in (None, mask):
            params = AttentionParams(0.125, bias)
            found = attention.attend(q, cache_k, cache_v, params, threads=2)
            if not np.allclose(found, _attention(q, k, v, bias), atol=1e-4):
                return False
    return True


def _attention(q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    scores = np.einsum("rhd,chd->rhc", q, k.repeat(2, axis=1).astype(np.float32)) / 8
    if mask is not None:
        scores += mask[:, None, :].astype(np.float32)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.asarray(np.einsum("rhc,chd->rhd", weights, v.repeat(2, axis=1).astype(np.float32)))


def check_backend(library: Path) -> bool:
    """Whether it is a backend of the ggml that is installed."""
    init = ctypes.CDLL(str(library)).ggml_backend_init
    init.restype = ctypes.c_void_p
    return bool(init())


def check_adapters(library: Path) -> bool:
    """Whether it has the functions for adapters."""
    adapters = AdapterLibrary(library)
    matrices = LoraMatrices(np.ones((1, 32), np.float32), np.ones((16, 1), np.float32))
    adapters.put("check", 0, matrices)
    adapters.remove(0)
    return True


CHECKS = (check_matmul, check_attention, check_backend, check_adapters)

if __name__ == "__main__":
    path = Path(sys.argv[1])
    sys.exit(0 if all(check(path) for check in CHECKS) else 1)
