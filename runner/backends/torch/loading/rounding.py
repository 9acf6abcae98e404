"""Which maps of a model of floats are quantized while it is loaded, and how: the load plan's
quantize. Its kinds are the table of modelfile/load_quantization.py.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from kernels.quant.packed import PackedWeight
from kernels.quant.rounding import (
    column_magnitudes,
    outlier_columns,
    row_magnitudes,
    to_fp8,
    to_int4,
    to_int8,
)
from registry.errors import shown
from runner.backends.torch.config import INT4_GROUP
from runner.backends.torch.loading.weight_source import MatrixPart
from runner.errors import ModelLoadFailed

Tensor = Any
_LAYERS: Final = (".layers.", ".layer.")
_KEPT: Final = (".gate", ".router")  # which experts a token goes to


def is_rounded(name: str) -> bool:
    """Whether the map called name is one of a layer's, but what chooses experts. Embedding and head
    stay floats: close logits must not become the same."""
    return any(part in name for part in _LAYERS) and not name.endswith(_KEPT)


def round_map(
    name: str, weight: Tensor, kind: str, part: MatrixPart | None = None
) -> tuple[PackedWeight, Tensor]:
    """(the weights [N, C] of a map quantized, the columns [O] that are zero in them and stay
    floats). part: where weight lies in a whole, which has these numbers when it is quantized.
    Raises ModelLoadFailed for weights that are not finite, and a width that int4 does not
    divide."""
    columns = torch.empty(0, dtype=torch.int64, device=weight.device)
    try:
        if kind == "int4":
            if weight.shape[1] % INT4_GROUP:
                raise ValueError(f"rows of {weight.shape[1]} weights, no multiple of {INT4_GROUP}")
            return to_int4(weight, INT4_GROUP), columns
        if kind == "int8":
            columns = outlier_columns(_column_magnitudes(weight, part))
        largest = None
        if part is not None and part.columns is not None:
            largest = torch.cat(
                [row_magnitudes(each.to(weight.device), columns) for each in part.pieces()]
            )
            own = part.columns
            columns = columns[(columns >= own.start) & (columns < own.stop)] - own.start
        if kind == "fp8":
            return to_fp8(weight, largest), columns
        return to_int8(weight, columns, largest), columns
    except ValueError as error:
        raise ModelLoadFailed(
            f"tensor {shown(f'{name}.weight')} cannot be quantized to {kind}: it has {error}"
        ) from None


def _column_magnitudes(weight: Tensor, part: MatrixPart | None) -> Tensor:
    """Of the whole that weight is a part of."""
    if part is None:
        return column_magnitudes(weight)
    found = [column_magnitudes(each.to(weight.device)) for each in part.pieces()]
    return torch.stack(found).amax(0)
