"""Which maps of a model of floats are quantized while it is loaded, and how: the load plan's
quantize. Its kinds are the table of modelfile/load_quantization.py.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from kernels.quant.packed import PackedWeight
from kernels.quant.rounding import outlier_columns, to_fp8, to_int4, to_int8
from registry.errors import shown
from runner.backends.torch.config import INT4_GROUP
from runner.errors import ModelLoadFailed

Tensor = Any
_LAYERS: Final = (".layers.", ".layer.")
_KEPT: Final = (".gate", ".router")  # which experts a token goes to


def is_rounded(name: str) -> bool:
    """Whether the map called name is one of a layer's, but what chooses experts. Embedding and head
    stay floats: close logits must not become the same."""
    return any(part in name for part in _LAYERS) and not name.endswith(_KEPT)


def round_map(name: str, weight: Tensor, kind: str) -> tuple[PackedWeight, Tensor]:
    """(the weights [N, C] of a map quantized, the columns [O] that are zero in them and stay
    floats). Raises ModelLoadFailed for weights that are not finite, and a width that int4 does not
    divide."""
    columns = torch.empty(0, dtype=torch.int64, device=weight.device)
    try:
        if kind == "int4":
            if weight.shape[1] % INT4_GROUP:
                raise ValueError(f"rows of {weight.shape[1]} weights, no multiple of {INT4_GROUP}")
            return to_int4(weight, INT4_GROUP), columns
        if kind == "fp8":
            return to_fp8(weight), columns
        columns = outlier_columns(weight)
        return to_int8(weight, columns), columns
    except ValueError as error:
        raise ModelLoadFailed(
            f"tensor {shown(f'{name}.weight')} cannot be quantized to {kind}: it has {error}"
        ) from None
