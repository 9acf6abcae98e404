"""DoRA (Liu et al., 2024) as a row's gain, computed against the weights of the adapter's model.

With DoRA a map is m / |W + s B A| ⊙ (W + s B A), where m, the magnitudes, and the norms are of
rows. That is W x + (g - 1) ⊙ W x + g ⊙ s B A x, where g = m / |W + s B A|. So the adapter's file
has g ⊙ B in the place of B, and g - 1 as NAME.lora_gain, a tensor of ours. W are the weights that
the model's file has, rounded as they are, as for PEFT.
"""

from __future__ import annotations

from typing import Final

import gguf
import numpy as np
from numpy.typing import NDArray

from modelfile.errors import ConvertError
from registry.formats.gguf import GgufHeader, TensorInfo

CHUNK_BYTES: Final = 16 << 20  # of weights in float32

Matrix = NDArray[np.float32]


def row_gains(
    model: GgufHeader, weights: TensorInfo, update: tuple[Matrix, Matrix], magnitudes: Matrix
) -> NDArray[np.float64]:
    """g [rows] of a matrix of the model. update: A [rank, columns] and s B [rows, rank]; rows as
    the model's file has them. Raises ConvertError for a type that cannot be read and for a row
    without a finite gain, OSError."""
    columns, rows = weights.dimensions
    a, b = update
    gains = np.empty(rows)
    stored = np.memmap(
        model.path,
        np.uint8,
        "r",
        model.data_offset + weights.offset,
        (rows, weights.size_bytes // rows),
    )
    step = max(1, CHUNK_BYTES // (4 * columns))
    for first in range(0, rows, step):
        part = slice(first, first + step)
        changed = _floats(stored[part], weights) + b[part] @ a
        squares = np.einsum("ij,ij->i", changed, changed, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            gains[part] = magnitudes[part] / np.sqrt(squares)
    broken = np.flatnonzero(~np.isfinite(gains.astype(np.float32)))
    if len(broken):
        raise ConvertError(
            f"the adapter's magnitude for row {broken[0]} of {weights.name} is"
            f" {magnitudes[broken[0]]:g}, which divided by the norm of the row is no finite number"
        )
    return gains


def _floats(stored: NDArray[np.uint8], weights: TensorInfo) -> Matrix:
    """Some whole rows."""
    try:
        kind = gguf.GGMLQuantizationType[weights.type]
        values: Matrix = gguf.quants.dequantize(stored, kind)
    except (KeyError, NotImplementedError):
        raise ConvertError(
            f"the model's {weights.name} is {weights.type}, which cannot be read for the norms that"
            " DoRA needs; use a model of another type"
        ) from None
    return values.reshape(len(stored), -1)
