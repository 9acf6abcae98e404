"""LoRA adapters as GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Sides = Mapping[str, tuple[Matrix, Matrix]]  # of each tensor, A [rank, in] and B [out, rank]
Gains = Mapping[str, Matrix]  # of DoRA: of each tensor, [out]


def write_adapter(
    path: Path,
    of: Sides,
    alpha: float,
    architecture: str = "llama",
    gains: Gains = MappingProxyType({}),
) -> Path:
    """Write them; gives path."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, (a, b) in of.items():
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
    for name, values in gains.items():
        writer.add_tensor(f"{name}.lora_gain", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
