"""Random weights of a checkpoint, the same on every machine, and the files that hold them.

Knows NumPy only, so that the tests and the reference implementation can make the same weights.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NORMS_ABOUT_ZERO = ("gemma2", "gemma3", "gemma3_text")


def weight(kind: str, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The weights of one tensor, rounded to bfloat16. kind: the model_type."""
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    values = generator.standard_normal(shape, dtype=np.float32)
    norm = "norm" in name.lower() and name.endswith(".weight")
    if norm:
        values = values * 0.1 + (0.0 if kind in NORMS_ABOUT_ZERO else 1.0)
    else:
        values = values * (0.02 if len(shape) == 1 else 1.2 / shape[-1] ** 0.5)
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded: NDArray[np.float32] = ((bits + 0x8000) & 0xFFFF0000).view("<f4")
    return rounded


def write_safetensors(
    path: Path, tensors: Mapping[str, NDArray[np.float32]], dtype: str = "BF16"
) -> None:
    """The tensors in one file. dtype: F32, F16 or BF16."""
    header: dict[str, Any] = {}
    parts, offset = [], 0
    for name, values in tensors.items():
        part = _encoded(values, dtype)
        end = offset + len(part)
        header[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": [offset, end],
        }
        parts.append(part)
        offset = end
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def _encoded(values: NDArray[np.float32], dtype: str) -> bytes:
    values = np.ascontiguousarray(values, dtype="<f4")
    if dtype == "BF16":
        return (values.view("<u4") >> 16).astype("<u2").tobytes()
    return values.astype("<f2" if dtype == "F16" else "<f4").tobytes()
