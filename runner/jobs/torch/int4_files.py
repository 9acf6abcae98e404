"""Four-bit weights as published checkpoints of GPTQ and AWQ store them.

Sources: AutoGPTQ's and AutoAWQ's packing code; kernels/quant/int4.py reads both.
"""

from __future__ import annotations

from typing import Any

import torch

from runner.jobs.torch.gptq import Int4Numbers

Tensor = Any
_PER_WORD = 8
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which column the nibbles of a word hold


def gptq_tensors(weight: Int4Numbers) -> dict[str, Tensor]:
    """By what follows the map's name: qweight int32 [C / 8, N], qzeros int32 [groups, N / 8], less
    one, scales float16 [groups, N], g_idx int32 [C]."""
    columns, groups = weight.numbers.shape[1], weight.scales.shape[1]
    return {
        "qweight": _words(weight.numbers).t().contiguous(),
        "qzeros": _words(weight.zeros.t() - 1),
        "scales": weight.scales.t().half().contiguous(),
        "g_idx": torch.arange(columns, dtype=torch.int32) // (columns // groups),
    }


def awq_tensors(weight: Int4Numbers) -> dict[str, Tensor]:
    """The same of AWQ's gemm: qweight int32 [C, N / 8], qzeros int32 [groups, N / 8], scales
    float16 [groups, N]."""
    return {
        "qweight": _words(_awq_columns(weight.numbers.t())),
        "qzeros": _words(_awq_columns(weight.zeros.t())),
        "scales": weight.scales.t().half().contiguous(),
    }


def _awq_columns(numbers: Tensor) -> Tensor:
    return numbers.unflatten(1, (-1, _PER_WORD))[..., list(_AWQ_ORDER)].flatten(1)


def _words(numbers: Tensor) -> Tensor:
    """int32 [R, n / 8] of four-bit numbers [R, n], lowest first."""
    wide = numbers.unflatten(1, (-1, _PER_WORD)).int()
    words = torch.zeros(wide.shape[:2], dtype=torch.int32)
    for place in range(_PER_WORD):
        words |= wide[..., place] << (4 * place)
    return words.contiguous()
