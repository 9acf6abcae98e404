"""Weights of floats rounded to fewer bits, to the nearest: int8 and FP8 with a scale for each row,
int4 with a scale and a zero point for each group of a row.

What the results mean is said in int8.py, fp8.py and int4.py. A part of the rows at a time is made
float32, so that a tensor's copies stay small. Sources: LLM.int8() (Dettmers et al., 2022) for the
columns that are kept, EETQ for int8 with floats as inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.quant.fp8 import MAX_E4M3, Fp8Weight
from kernels.quant.int4 import Int4Weight, pack
from kernels.quant.int8 import Int8Weight

_WEIGHTS_AT_ONCE = 1 << 18  # their copies are small: they stay in the cache and leave no holes
_STICKS_OUT = 3.0  # of the median of the columns' largest magnitudes
_MAX_OUTLIERS = 32  # one column in so many at most
_SMALLEST = 2.0**-24  # the least scale that float16 has


def to_int8(weight: Tensor, without: Tensor, largest: Tensor | None = None) -> Int8Weight:
    """weight [N, C] as int8 with a scale float32 for each row, its columns without [O] as zeros.
    largest: row_magnitudes of the whole rows, where weight has some of their columns. Raises
    ValueError for weights that are not finite, as the others do."""
    largest = row_magnitudes(weight, without) if largest is None else largest
    scales = (largest / 127).clamp_min(_SMALLEST)
    return Int8Weight(_divided(weight, scales, torch.int8, without), scales)


def to_fp8(weight: Tensor, largest: Tensor | None = None) -> Fp8Weight:
    """weight [N, C] as float8_e4m3fn with a scale float32 for each row. largest: as for to_int8."""
    largest = row_magnitudes(weight) if largest is None else largest
    scales = (largest / MAX_E4M3).clamp_min(_SMALLEST)
    return Fp8Weight(_divided(weight, scales, torch.float8_e4m3fn), scales[:, None])


def to_int4(weight: Tensor, group: int) -> Int4Weight:
    """weight [N, C] in four bits; group divides C. The scales are float16."""

    def part(rows: Tensor) -> tuple[Tensor, ...]:
        wide = rows.unflatten(1, (-1, group))
        scale, zero = int4_scales(wide)
        numbers = (wide / scale[..., None]).round_().add_(zero[..., None]).clamp_(0, 15)
        return pack(numbers.flatten(1).to(torch.uint8)), scale.half(), zero.to(torch.uint8)

    return Int4Weight(*_by_rows(weight, part))


def int4_scales(groups: Tensor) -> tuple[Tensor, Tensor]:
    """(scales, zero points) [...] of groups [..., G], both float32, the first as float16 has them:
    from the least to the largest of each group, zero among them."""
    low, high = groups.amin(-1).clamp_max(0), groups.amax(-1).clamp_min(0)
    scale = ((high - low) / 15).clamp_min(_SMALLEST).half().float()
    return scale, (-low / scale).round_().clamp_(0, 15)


def row_magnitudes(weight: Tensor, without: Tensor | None = None) -> Tensor:
    """float32 [N]: the largest magnitude in each row of weight [N, C], but for the columns
    without [O]. Raises ValueError for weights that are not finite."""
    if without is None or not len(without):
        return _finite(torch.maximum(weight.amax(1), -weight.amin(1)).float())
    parts = (part.index_fill(1, without, 0) for part in weight.split(_rows_at_once(weight)))
    return torch.cat([row_magnitudes(part) for part in parts])


def column_magnitudes(weight: Tensor) -> Tensor:
    """float32 [C]: the largest in each column. Raises as row_magnitudes."""
    # No copy of the weights: freed between those that stay, it would leave holes in malloc's heap.
    return _finite(torch.maximum(weight.amax(0), -weight.amin(0)).float())


def outlier_columns(largest: Tensor) -> Tensor:
    """The columns [O] of those with magnitudes largest [C] which stick out, largest first: with
    them every row's scale would be coarse for all others."""
    count = int((largest > _STICKS_OUT * largest.median()).sum())
    return largest.topk(min(count, len(largest) // _MAX_OUTLIERS)).indices


def _finite(largest: Tensor) -> Tensor:
    if not bool(largest.isfinite().all()):
        raise ValueError("weights that are infinite or no numbers")
    return largest


def _rows_at_once(weight: Tensor) -> int:
    columns: int = weight.shape[1]
    return max(1, _WEIGHTS_AT_ONCE // max(1, columns))


def _divided(
    weight: Tensor, scales: Tensor, dtype: torch.dtype, without: Tensor | None = None
) -> Tensor:
    """weight [N, C] divided by scales [N] and rounded to dtype, with zeros in the columns
    without."""
    found = torch.empty(weight.shape, dtype=dtype, device=weight.device)
    rows = _rows_at_once(weight)
    for start in range(0, len(weight), rows):
        wide = weight[start : start + rows] / scales[start : start + rows, None]
        if without is not None and len(without):
            wide.index_fill_(1, without, 0)
        found[start : start + rows] = wide if dtype.is_floating_point else wide.round_()
    return found


def _by_rows(weight: Tensor, one: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """What one gives of the rows of weight, in float32, one below the other. Raises ValueError for
    weights that are not finite."""
    rows = _rows_at_once(weight)
    whole: tuple[Tensor, ...] = ()
    for start in range(0, len(weight), rows):
        wide = weight[start : start + rows].float()
        _finite(wide)
        parts = one(wide)
        if not whole:
            whole = tuple(part.new_empty((len(weight), *part.shape[1:])) for part in parts)
        for into, part in zip(whole, parts, strict=True):
            into[start : start + rows] = part
    return whole
